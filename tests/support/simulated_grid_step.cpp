// Phases follow each other on every rank's clock; the reductions of gradients have clocks of their
// own beside them. Each exchange becomes an operation of the transport, posted by every rank of its
// group when that rank has come so far.

#include "support/simulated_grid_step.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>

#include "collective/algorithms.hpp"

namespace rondo::test {
namespace {

using transport::Algorithm;
using transport::AllreduceAlgorithm;
using transport::Posted;
using transport::shm::Collective;
using Kind = SimulatedExchange::Kind;

// An operation, and how much of what a rank receives is added to what it has.
struct Chosen {
  const Algorithm& algorithm;
  double reduced_share = 0.0;
};

std::size_t sum_of(const std::vector<std::size_t>& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::size_t{0});
}

Chosen algorithm_for(const SimulatedExchange& exchange) {
  switch (exchange.kind) {
    case Kind::messages:
      return {transport::algorithms::exchange};
    case Kind::allgather:
      return {transport::algorithms::ring};
    case Kind::reduce_scatter:
      return {transport::algorithms::ring, 1.0};
    case Kind::allreduce:
      break;
  }
  const auto table = transport::AlgorithmTable::for_ranks(exchange.groups.size);
  const bool doubles = table.pick(exchange.bytes[0]) == AllreduceAlgorithm::doubling;
  if (doubles) return {transport::algorithms::doubling_allreduce, 1.0};
  return {transport::algorithms::ring, 0.5};
}

// What the members of a group read and write together. They read what others have, and store what
// comes of it: all of it into each output, or a share into each.
std::size_t moved_in_memory(const SimulatedExchange& exchange) {
  const std::size_t all = sum_of(exchange.bytes);
  const std::size_t size = exchange.groups.size;
  if (exchange.kind == Kind::allgather) return 2 * (size - 1) * all;
  return exchange.kind == Kind::reduce_scatter ? (size + 1) * all : 2 * size * all;
}

// Where what a member sends to each begins, and what it gets from each.
void set_parts(Posted& posted, const SimulatedExchange& exchange, std::size_t member) {
  const std::size_t size = exchange.groups.size;
  posted.sent_at = posted.received_at = {0};
  for (std::size_t peer = 0; peer < size; ++peer) {
    posted.sent_at.push_back(posted.sent_at.back() + exchange.bytes[member * size + peer]);
    posted.received_at.push_back(posted.received_at.back() + exchange.bytes[peer * size + member]);
  }
}

Posted posted_by(std::size_t member, const SimulatedExchange& exchange,
                 std::span<std::byte> memory) {
  const std::size_t all = sum_of(exchange.bytes);
  if (exchange.kind == Kind::allreduce) {
    return posted_bytes(Collective::allreduce, memory, all, all);
  }
  if (exchange.kind == Kind::messages) {
    Posted posted = posted_bytes(Collective::alltoallv, memory, all, all);
    set_parts(posted, exchange, member);
    return posted;
  }
  const bool gathers = exchange.kind == Kind::allgather;
  const std::size_t own = exchange.bytes[member];
  Posted posted = gathers ? posted_bytes(Collective::allgather, memory, own, all)
                          : posted_bytes(Collective::reduce_scatter, memory, all, own);
  posted.row_bytes_of = exchange.bytes;
  return posted;
}

}  // namespace

std::size_t SimulatedExchange::sent_bytes() const {
  const std::size_t all = sum_of(bytes);
  if (kind == Kind::messages) return all;
  return (kind == Kind::allreduce ? 2 : 1) * (groups.size - 1) * all;
}

SimulatedGrid::SimulatedGrid(std::size_t ranks, const SimulatedCosts& costs,
                             std::size_t segment_bytes)
    : ranks_(ranks),
      costs_(costs),
      options_{.costs = costs, .moves_data = false, .segment_bytes = segment_bytes} {
  options_.ports_stay_busy = true;
  // A message is read and written.
  options_.costs.memory_per_byte *= 2.0;
}

std::vector<double> SimulatedGrid::run(const SimulatedExchange& exchange,
                                       std::span<const double> starts) {
  const auto [size, stride] = exchange.groups;
  if (size == 1 || sum_of(exchange.bytes) == 0) return {starts.begin(), starts.end()};
  if (costs_.ranks_per_node > 1 && exchange.kind == Kind::allreduce && size == ranks_) {
    if (!of_all_) {
      of_all_ = std::make_unique<SimulatedAllreduce>(ranks_, costs_, options_.segment_bytes);
    }
    return of_all_->run(exchange.bytes[0], starts);
  }
  const bool inside = are_inside_nodes(exchange.groups);
  if (inside && exchange.kind != Kind::messages) return run_in_memory(exchange, starts);
  data_.resize(std::max(data_.size(), 2 * sum_of(exchange.bytes)));
  std::vector<Posted> posted;
  for (std::size_t r = 0; r < ranks_; ++r) {
    posted.push_back(posted_by(r / stride % size, exchange, data_));
  }
  const Chosen chosen = algorithm_for(exchange);
  return ranks_in(exchange.groups).run(chosen.algorithm, posted, chosen.reduced_share, starts);
}

bool SimulatedGrid::are_inside_nodes(const SimulatedGroups& groups) const {
  const std::size_t on_a_node = costs_.ranks_per_node;
  if (on_a_node == 1 || groups.stride % on_a_node == 0) return false;
  if (on_a_node % (groups.size * groups.stride) == 0) return true;
  throw std::invalid_argument("groups of " + std::to_string(groups.size) + ", " +
                              std::to_string(groups.stride) +
                              " apart, lie in part inside nodes of " + std::to_string(on_a_node));
}

// All groups of a node are taken to begin together, and share its memory.
std::vector<double> SimulatedGrid::run_in_memory(const SimulatedExchange& exchange,
                                                 std::span<const double> starts) const {
  const auto [size, stride] = exchange.groups;
  const std::size_t moved = moved_in_memory(exchange) * (costs_.ranks_per_node / size);
  const double seconds = simulated_synchronisations * costs_.inside_node.latency +
                         static_cast<double>(moved) * costs_.memory_per_byte;
  std::vector<double> ends(starts.begin(), starts.end());
  for (std::size_t r = 0; r < ranks_; ++r) {
    const std::size_t first = r / (size * stride) * (size * stride) + r % stride;
    for (std::size_t i = 0; i < size; ++i) {
      ends[r] = std::max(ends[r], starts[first + i * stride]);
    }
    ends[r] += seconds;
  }
  return ends;
}

SimulatedRanks& SimulatedGrid::ranks_in(const SimulatedGroups& groups) {
  if (ranks_ % (groups.size * groups.stride) != 0) {
    throw std::invalid_argument(
        std::to_string(ranks_) + " ranks cannot be divided into groups of " +
        std::to_string(groups.size) + ", " + std::to_string(groups.stride) + " apart");
  }
  std::unique_ptr<SimulatedRanks>& found = by_groups_[{groups.size, groups.stride}];
  if (!found) {
    options_.groups = groups.stride;
    options_.group_size = groups.size;
    found = std::make_unique<SimulatedRanks>(ranks_, options_);
  }
  return *found;
}

namespace {

// All ranks of a grid, on their way through a step.
class Steps {
 public:
  Steps(std::size_t ranks, const SimulatedCosts& costs, std::size_t segment_bytes,
        std::span<const double> slowness)
      : exchanges_(ranks, costs, segment_bytes),
        reductions_(ranks, costs, segment_bytes),
        slowness_(slowness),
        clocks_(ranks, 0.0),
        reduced_(ranks, 0.0) {}

  void pass(const SimulatedPhase& phase) {
    const std::vector<double> begin = clocks_;
    if (phase.exchange) clocks_ = exchanges_.run(*phase.exchange, begin);
    std::vector<double> computed = phase.beside ? begin : clocks_;
    for (std::size_t r = 0; r < clocks_.size(); ++r) {
      computed[r] += phase.seconds * slowness_[r];
      clocks_[r] = std::max(clocks_[r], computed[r]);
      computed[r] = std::max(computed[r], reduced_[r]);
    }
    if (phase.reduction) reduced_ = reductions_.run(*phase.reduction, computed);
  }

  // Returns when the last rank has updated its parameters.
  double update(double seconds) {
    for (std::size_t r = 0; r < clocks_.size(); ++r) {
      clocks_[r] = std::max(clocks_[r], reduced_[r]) + seconds * slowness_[r];
    }
    return *std::ranges::max_element(clocks_);
  }

 private:
  SimulatedGrid exchanges_;
  SimulatedGrid reductions_;
  std::span<const double> slowness_;
  std::vector<double> clocks_;
  std::vector<double> reduced_;  // until when each rank's reductions go on
};

}  // namespace

std::vector<double> simulate_grid_steps(std::size_t ranks, const SimulatedCosts& costs,
                                        std::size_t segment_bytes,
                                        std::span<const SimulatedPhase> phases,
                                        double update_seconds, std::span<const double> slowness,
                                        std::size_t steps) {
  if (slowness.size() != ranks) throw std::invalid_argument("every rank needs a slowness");
  Steps run(ranks, costs, segment_bytes, slowness);
  std::vector<double> ends;
  while (ends.size() < steps) {
    for (const SimulatedPhase& phase : phases) run.pass(phase);
    ends.push_back(run.update(update_seconds));
  }
  return ends;
}

}  // namespace rondo::test

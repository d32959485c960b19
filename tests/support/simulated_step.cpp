#include "support/simulated_step.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <stdexcept>
#include <string>

namespace rondo::test {
namespace {

using transport::AllreduceAlgorithm;
using transport::Posted;

// Half of what a ring receives is added; all that doubling receives is.
constexpr double reduced_by_ring = 0.5;
constexpr double reduced_by_doubling = 1.0;

std::unique_ptr<SimulatedRanks> make_ranks(std::size_t ranks, const SimulatedCosts& costs,
                                           std::size_t segment_bytes) {
  SimulatedRanks::Options options{
      .costs = costs, .moves_data = false, .segment_bytes = segment_bytes};
  options.groups = costs.ranks_per_node;
  options.ports_stay_busy = true;
  return std::make_unique<SimulatedRanks>(ranks, options);
}

// A block of a hierarchical allreduce that has been exchanged, and when on each rank.
struct Block {
  double bytes = 0.0;
  std::vector<double> exchanged = {};
};

// On all ranks, before they are done with what they do?
bool has_come(const Block& block, const std::vector<double>& until) {
  return std::ranges::equal(block.exchanged, until, std::ranges::less_equal());
}

SimulatedCosts one_rank_of_each_node(SimulatedCosts costs) {
  costs.ranks_per_node = 1;
  return costs;
}

}  // namespace

SimulatedAllreduce::SimulatedAllreduce(std::size_t ranks, const SimulatedCosts& costs,
                                       std::size_t segment_bytes)
    : ranks_(ranks),
      costs_(costs),
      nodes_(ranks / costs.ranks_per_node),
      table_(transport::AlgorithmTable::for_ranks(nodes_)) {
  if (ranks % costs.ranks_per_node != 0) {
    throw std::invalid_argument(std::to_string(ranks) + " ranks do not fill nodes of " +
                                std::to_string(costs.ranks_per_node));
  }
  if (nodes_ == 1) return;
  owners_ = make_ranks(ranks, costs, segment_bytes);
  if (costs.ranks_per_node > 1) {
    leaders_ = make_ranks(nodes_, one_rank_of_each_node(costs), segment_bytes);
  }
}

std::vector<double> SimulatedAllreduce::run(std::size_t bytes, std::span<const double> starts) {
  if (ranks_ == 1) return {starts.begin(), starts.end()};
  if (costs_.ranks_per_node == 1) {
    return simulate(*owners_, table_.pick(bytes) == AllreduceAlgorithm::doubling, bytes, starts);
  }
  if (nodes_ > 1) return between_nodes(bytes, starts);
  // One pass: every rank reads its slice of all inputs and stores it into all outputs.
  std::vector<double> times(starts.begin(), starts.end());
  wait_for_nodes(times, 2.0 * static_cast<double>(ranks_ * bytes));
  return times;
}

// Blocks pass three stages in their order. A node's ranks do one thing at a time: what has come
// back is copied out as soon as they are free, and else the next block is reduced.
std::vector<double> SimulatedAllreduce::between_nodes(std::size_t bytes,
                                                      std::span<const double> starts) {
  const bool is_short = table_.pick(bytes) == AllreduceAlgorithm::doubling;
  const std::size_t members = costs_.ranks_per_node;
  const transport::HierarchyPlan plan(bytes, is_short ? 1 : members, nodes_);
  std::vector<double> here(starts.begin(), starts.end());  // what ranks do on their nodes
  std::vector<double> exchanged(starts.begin(), starts.end());
  std::deque<Block> uncopied;
  const auto copy_next = [&] {
    const Block block = std::move(uncopied.front());
    uncopied.pop_front();
    for (std::size_t r = 0; r < ranks_; ++r) here[r] = std::max(here[r], block.exchanged[r]);
    wait_for_nodes(here, 2.0 * static_cast<double>(members) * block.bytes);
  };
  for (std::size_t block = 0; block < plan.blocks(); ++block) {
    while (!uncopied.empty() && has_come(uncopied.front(), here)) copy_next();
    const auto size = static_cast<double>(plan.block(block).size());
    // Every input is read once, every shard written once; then all ranks copy all shards.
    wait_for_nodes(here, (static_cast<double>(members) + 1.0) * size);
    for (std::size_t r = 0; r < ranks_; ++r) exchanged[r] = std::max(exchanged[r], here[r]);
    exchanged = exchange(plan, block, is_short, exchanged);
    uncopied.push_back({.bytes = size, .exchanged = exchanged});
  }
  while (!uncopied.empty()) copy_next();
  return here;
}

std::vector<double> SimulatedAllreduce::exchange(const transport::HierarchyPlan& plan,
                                                 std::size_t block, bool is_short,
                                                 std::span<const double> starts) {
  const std::size_t members = costs_.ranks_per_node;
  if (!is_short) {
    // The ranks of a node have shards of the same number of lines, but for the last.
    return simulate(*owners_, false, plan.shard(block, 0).size(), starts);
  }
  std::vector<double> leaders;
  for (std::size_t node = 0; node < nodes_; ++node) leaders.push_back(starts[node * members]);
  leaders = simulate(*leaders_, true, plan.block(block).size(), leaders);
  std::vector<double> all(starts.begin(), starts.end());
  for (std::size_t node = 0; node < nodes_; ++node) all[node * members] = leaders[node];
  return all;
}

// A node's ranks work together: each is done when all are, by the speed of the node's memory.
void SimulatedAllreduce::wait_for_nodes(std::span<double> times, double moved_bytes) const {
  const std::size_t members = costs_.ranks_per_node;
  const double seconds = moved_bytes * costs_.memory_per_byte +
                         simulated_synchronisations * costs_.inside_node.latency;
  for (std::size_t first = 0; first < times.size(); first += members) {
    const std::span<double> node = times.subspan(first, members);
    std::ranges::fill(node, *std::ranges::max_element(node) + seconds);
  }
}

std::vector<double> SimulatedAllreduce::simulate(SimulatedRanks& ranks, bool doubles,
                                                 std::size_t bytes,
                                                 std::span<const double> starts) {
  data_.resize(std::max(data_.size(), bytes));
  const Posted posted = posted_bytes(transport::shm::Collective::allreduce, data_, bytes, bytes);
  const std::vector<Posted> all(ranks.size(), posted);
  return ranks.run(
      doubles ? transport::algorithms::doubling_allreduce : transport::algorithms::ring, all,
      doubles ? reduced_by_doubling : reduced_by_ring, starts);
}

std::vector<double> simulate_steps(SimulatedAllreduce& allreduce, const SimulatedWork& work,
                                   std::span<const double> slowness, std::size_t steps) {
  if (slowness.size() != allreduce.ranks()) {
    throw std::invalid_argument("every rank needs a slowness");
  }
  std::vector<double> begin(slowness.size(), 0.0);
  std::vector<double> ends;
  while (ends.size() < steps) {
    std::vector<double> network = begin;  // until when each rank's reductions go on
    for (const SimulatedWork::Bucket& bucket : work.buckets) {
      std::vector<double> ready(slowness.size());
      for (std::size_t r = 0; r < ready.size(); ++r) {
        ready[r] = std::max(network[r], begin[r] + bucket.final_seconds * slowness[r]);
      }
      network = allreduce.run(bucket.bytes, ready);
    }
    for (std::size_t r = 0; r < begin.size(); ++r) {
      begin[r] = std::max(network[r], begin[r] + work.backward_end * slowness[r]) +
                 work.update_seconds * slowness[r];
    }
    ends.push_back(*std::ranges::max_element(begin));
  }
  return ends;
}

}  // namespace rondo::test

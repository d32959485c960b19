#include "support/simulated_hierarchy.hpp"

#include <algorithm>
#include <deque>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

namespace rondo::test {
namespace {

using transport::AllreduceAlgorithm;
using transport::Posted;
using transport::shm::Collective;

// How much of what is received is added.
constexpr double reduced_by_scatter = 1.0;

// A block of an allreduce that has been exchanged, and when on each rank.
struct Block {
  std::size_t bytes = 0;
  std::vector<double> exchanged = {};
};

// On all ranks, before they are done with what they do?
bool has_come(const Block& block, const std::vector<double>& until) {
  return std::ranges::equal(block.exchanged, until, std::ranges::less_equal());
}

std::size_t sum_of(std::span<const std::size_t> bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::size_t{0});
}

// The bytes that the members on a node read and write together: each copies what the others have;
// or each reads its share of all inputs, and writes it once.
std::size_t moved_by_allgather(std::size_t members, std::size_t bytes) {
  return 2 * (members - 1) * bytes;
}
std::size_t moved_by_reduce_scatter(std::size_t members, std::size_t bytes) {
  return (members + 1) * bytes;
}

// How many ranks of a group are on a node.
std::size_t members_on_a_node(std::size_t ranks, std::size_t ranks_per_node,
                              const SimulatedGroups& groups) {
  const auto [size, stride] = groups;
  if (ranks % ranks_per_node != 0) {
    throw std::invalid_argument(std::to_string(ranks) + " ranks do not fill nodes of " +
                                std::to_string(ranks_per_node));
  }
  if (ranks % (size * stride) != 0) {
    throw std::invalid_argument(std::to_string(ranks) + " ranks cannot be divided into groups of " +
                                std::to_string(size) + ", " + std::to_string(stride) + " apart");
  }
  if (stride % ranks_per_node == 0) return 1;
  if (ranks_per_node % (size * stride) == 0) return size;
  const std::size_t members = ranks_per_node / stride;
  if (ranks_per_node % stride == 0 && size % members == 0) return members;
  throw std::invalid_argument("groups of " + std::to_string(size) + ", " + std::to_string(stride) +
                              " apart, lie in part inside nodes of " +
                              std::to_string(ranks_per_node));
}

std::unique_ptr<SimulatedRanks> make_ranks(std::size_t ranks, const SimulatedCosts& costs,
                                           std::size_t segment_bytes, SimulatedGroups groups,
                                           SharedPorts::User* shared_ports) {
  return std::make_unique<SimulatedRanks>(ranks,
                                          SimulatedRanks::Options{.costs = costs,
                                                                  .moves_data = false,
                                                                  .segment_bytes = segment_bytes,
                                                                  .groups = groups.stride,
                                                                  .group_size = groups.size,
                                                                  .ports_stay_busy = true,
                                                                  .shared_ports = shared_ports});
}

SimulatedCosts with_ranks_per_node(SimulatedCosts costs, std::size_t ranks) {
  costs.ranks_per_node = ranks;
  return costs;
}

}  // namespace

SimulatedHierarchy::SimulatedHierarchy(std::size_t ranks, const SimulatedCosts& costs,
                                       std::size_t segment_bytes, SimulatedGroups groups,
                                       SharedPorts::User* shared_ports)
    : ranks_(ranks),
      costs_(costs),
      groups_(groups),
      members_(members_on_a_node(ranks, costs.ranks_per_node, groups)),
      nodes_(groups.size / members_),
      table_(transport::AlgorithmTable::for_ranks(nodes_)) {
  if (nodes_ == 1) return;
  const std::size_t stride = members_ == 1 ? groups.stride : costs.ranks_per_node;
  owners_ =
      make_ranks(ranks, costs, segment_bytes, {.size = nodes_, .stride = stride}, shared_ports);
  if (members_ == 1) return;
  leaders_ = make_ranks(ranks / members_, with_ranks_per_node(costs, groups.stride), segment_bytes,
                        {.size = nodes_, .stride = groups.stride}, shared_ports);
}

std::vector<double> SimulatedHierarchy::allreduce(std::size_t bytes,
                                                  std::span<const double> starts) {
  std::vector<double> times(starts.begin(), starts.end());
  if (groups_.size == 1) return times;
  if (members_ == 1) return run_allreduce(*owners_, table_.pick(bytes), bytes, starts);
  if (nodes_ > 1) return allreduce_between_nodes(bytes, starts);
  // One pass: every rank reads its slice of all inputs and stores it into all outputs.
  wait_for_nodes(times, 2 * members_ * bytes);
  return times;
}

// Blocks pass three stages in their order. A node's ranks do one thing at a time: what has come
// back is copied out as soon as they are free, and else the next block is reduced.
std::vector<double> SimulatedHierarchy::allreduce_between_nodes(std::size_t bytes,
                                                                std::span<const double> starts) {
  const AllreduceAlgorithm algorithm = table_.pick(bytes);
  const bool is_short = algorithm == AllreduceAlgorithm::doubling;
  const transport::HierarchyPlan plan(bytes, is_short ? 1 : members_, nodes_);
  std::vector<double> here(starts.begin(), starts.end());  // what ranks do on their nodes
  std::vector<double> exchanged(starts.begin(), starts.end());
  std::deque<Block> uncopied;
  const auto copy_next = [&] {
    const Block block = std::move(uncopied.front());
    uncopied.pop_front();
    for (std::size_t r = 0; r < ranks_; ++r) here[r] = std::max(here[r], block.exchanged[r]);
    wait_for_nodes(here, 2 * members_ * block.bytes);
  };
  for (std::size_t block = 0; block < plan.blocks(); ++block) {
    while (!uncopied.empty() && has_come(uncopied.front(), here)) copy_next();
    const std::size_t size = plan.block(block).size();
    wait_for_nodes(here, moved_by_reduce_scatter(members_, size));
    for (std::size_t r = 0; r < ranks_; ++r) exchanged[r] = std::max(exchanged[r], here[r]);
    exchanged = exchange(plan, block, algorithm, exchanged);
    uncopied.push_back({.bytes = size, .exchanged = exchanged});
  }
  while (!uncopied.empty()) copy_next();
  return here;
}

std::vector<double> SimulatedHierarchy::exchange(const transport::HierarchyPlan& plan,
                                                 std::size_t block, AllreduceAlgorithm algorithm,
                                                 std::span<const double> starts) {
  // The ranks of a node have shards of the same number of lines, but for the last.
  if (algorithm != AllreduceAlgorithm::doubling) {
    return run_allreduce(*owners_, algorithm, plan.shard(block, 0).size(), starts);
  }
  return among_leaders(starts, [&](std::span<const double> leaders) {
    return run_allreduce(*leaders_, algorithm, plan.block(block).size(), leaders);
  });
}

// Calls run(starts of the leaders), and leaves the others as they are.
template <typename Run>
std::vector<double> SimulatedHierarchy::among_leaders(std::span<const double> starts,
                                                      const Run& run) {
  const auto leads = [&](std::size_t r) { return r / groups_.stride % members_ == 0; };
  std::vector<double> leaders;
  for (std::size_t r = 0; r < ranks_; ++r) {
    if (leads(r)) leaders.push_back(starts[r]);
  }
  leaders = run(leaders);
  std::vector<double> all(starts.begin(), starts.end());
  for (std::size_t r = 0, leader = 0; r < ranks_; ++r) {
    if (leads(r)) all[r] = leaders[leader++];
  }
  return all;
}

// Another operation gathers, on each node, the data that come from other nodes.
std::vector<double> SimulatedHierarchy::allgather(std::span<const std::size_t> shares,
                                                  std::span<const double> starts) {
  const std::size_t all = sum_of(shares);
  const std::size_t of_a_node = all / nodes_;
  std::vector<double> times(starts.begin(), starts.end());
  if (members_ > 1) wait_for_nodes(times, moved_by_allgather(members_, of_a_node));
  if (nodes_ == 1) return times;
  times = exchange_shares(Collective::allgather, shares, times);
  if (members_ == 1) return times;
  wait_for_nodes(times, moved_by_allgather(members_, table_.is_short(all) ? all : all - of_a_node));
  return times;
}

// An owner's sums are those of its own share; but a leader has those of its node's.
std::vector<double> SimulatedHierarchy::reduce_scatter(std::span<const std::size_t> shares,
                                                       std::span<const double> starts) {
  const std::size_t all = sum_of(shares);
  std::vector<double> times(starts.begin(), starts.end());
  if (members_ > 1) wait_for_nodes(times, moved_by_reduce_scatter(members_, all));
  if (nodes_ == 1) return times;
  times = exchange_shares(Collective::reduce_scatter, shares, times);
  if (members_ > 1 && table_.is_short(all)) wait_for_nodes(times, 2 * all / nodes_);
  return times;
}

// The leader has all shares of its node when data are short; otherwise each rank has its own.
std::vector<double> SimulatedHierarchy::exchange_shares(Collective collective,
                                                        std::span<const std::size_t> shares,
                                                        std::span<const double> starts) {
  const double reduced = collective == Collective::reduce_scatter ? reduced_by_scatter : 0.0;
  const auto run = [&](SimulatedRanks& ranks, const std::vector<Posted>& posted,
                       std::span<const double> begin) {
    return ranks.run(transport::algorithms::ring, posted, reduced, begin);
  };
  data_.resize(std::max(data_.size(), 2 * sum_of(shares)));
  const bool by_leaders = members_ > 1 && table_.is_short(sum_of(shares));
  const std::size_t owners = by_leaders ? 1 : members_;
  std::vector<Posted> posted;
  for (std::size_t r = 0; r < ranks_ / members_ * owners; ++r) {
    const std::size_t member = r / groups_.stride % (nodes_ * owners);
    std::vector<std::size_t> rows;
    for (std::size_t node = 0; node < nodes_; ++node) {
      const auto of_node = shares.subspan(node * members_, members_);
      rows.push_back(by_leaders ? sum_of(of_node) : of_node[member % owners]);
    }
    posted.push_back(posted_shares(collective, data_, rows, member / owners));
  }
  if (!by_leaders) return run(*owners_, posted, starts);
  return among_leaders(
      starts, [&](std::span<const double> leaders) { return run(*leaders_, posted, leaders); });
}

// A node's ranks work together: each is done when all of its group are, by the speed of the node's
// memory. All groups of a node are taken to begin together.
void SimulatedHierarchy::wait_for_nodes(std::span<double> times, std::size_t moved_bytes) const {
  const std::size_t groups_on_a_node = costs_.ranks_per_node / members_;
  const double seconds =
      static_cast<double>(moved_bytes * groups_on_a_node) * costs_.memory_per_byte +
      simulated_synchronisations * costs_.inside_node.latency;
  for (std::size_t first = 0; first < ranks_; ++first) {
    if (first / groups_.stride % members_ != 0) continue;
    double last = 0.0;
    for (std::size_t i = 0; i < members_; ++i) {
      last = std::max(last, times[first + i * groups_.stride]);
    }
    for (std::size_t i = 0; i < members_; ++i) times[first + i * groups_.stride] = last + seconds;
  }
}

std::vector<double> SimulatedHierarchy::run_allreduce(SimulatedRanks& ranks,
                                                      AllreduceAlgorithm algorithm,
                                                      std::size_t bytes,
                                                      std::span<const double> starts) {
  data_.resize(std::max(data_.size(), bytes));
  const Posted posted = posted_bytes(Collective::allreduce, data_, bytes, bytes);
  const std::vector<Posted> all(ranks.size(), posted);
  const auto [runs, reduced] = simulated_allreduce(algorithm);
  return ranks.run(*runs, all, reduced, starts);
}

}  // namespace rondo::test

// The calls of the table of collectives, run by simulated ranks. Every rank's elements have values
// of their own, and sums are of integers: so a wrong, missing or repeated element changes the
// result.

#include "support/simulated_collectives.hpp"

#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "collective/flat/schedules.hpp"
#include "support/call_buffers.hpp"
#include "support/hierarchy_cuts.hpp"
#include "support/link_data.hpp"
#include "support/link_traffic.hpp"
#include "support/simulated_ranks.hpp"

namespace rondo::test {
namespace {

namespace algorithms = transport::algorithms;
using transport::Algorithm;
using transport::Posted;
using transport::shm::Collective;

constexpr std::size_t longest_segment = std::size_t{512} << 10U;

void expect(bool holds, const char* what, std::size_t rank) {
  if (!holds) throw std::runtime_error("rank " + std::to_string(rank) + ": " + what);
}

std::set<std::size_t> roots_of(std::size_t ranks) {
  constexpr std::size_t few = 64;
  if (ranks > few) return {0, 1, ranks / 2, ranks - 1};
  std::set<std::size_t> all;
  for (std::size_t r = 0; r < ranks; ++r) all.insert(r);
  return all;
}

// Runs what was posted, and adds what was sent. Where the form is given, ranks must send as it
// says.
SimulatedTraffic run(const Algorithm& algorithm, const std::vector<Posted>& posted,
                     SimulatedRanks& ranks, const LinkAlgorithm* form) {
  ranks.run(algorithm, posted);
  SimulatedTraffic traffic{.operations = 1};
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const LinkTraffic sent{.messages = ranks.counters(r).sent_messages,
                           .bytes = ranks.counters(r).sent_bytes};
    if (form != nullptr) {
      const LinkTraffic expected =
          link_traffic_of(*form, posted[r], r, ranks.size(), longest_segment);
      expect(sent == expected, "it did not send what the closed form says", r);
    }
    traffic.messages += sent.messages;
    traffic.bytes += sent.bytes;
  }
  return traffic;
}

void add(SimulatedTraffic& sum, const SimulatedTraffic& more) {
  sum.operations += more.operations;
  sum.messages += more.messages;
  sum.bytes += more.bytes;
}

constexpr LinkAlgorithm ring = LinkAlgorithm::ring;
constexpr LinkAlgorithm doubling = LinkAlgorithm::doubling;
constexpr LinkAlgorithm halving = LinkAlgorithm::halving;
constexpr LinkAlgorithm tree = LinkAlgorithm::tree;
constexpr LinkAlgorithm pairwise = LinkAlgorithm::pairwise;

// A call of the table, and how it is run.
struct SimulatedWay {
  const char* name;
  const char* call;
  const Algorithm* algorithm;
  const LinkAlgorithm* form;  // of what is sent; null: each part is sent once
  std::size_t elements;       // of an array, or of each rank's share
  std::size_t more_per_rank = 0;
};

// A cache line for every rank's chunk, and a few elements more; of few, most halves are empty.
const SimulatedWay ways[] = {
    {"allreduce by rings", "AllreduceInPlace", &algorithms::ring, &ring, 5, 16},
    {"allreduce by doubling", "AllreduceInPlace", &algorithms::doubling_allreduce, &doubling, 5},
    {"allreduce by halving", "AllreduceInPlace", &algorithms::halving_allreduce, &halving, 5, 16},
    {"allreduce by halving of few", "AllreduceInPlace", &algorithms::halving_allreduce, &halving,
     40},
    {"reduce_scatter", "ReduceScatter", &algorithms::ring, &ring, 2},
    {"reduce_scatter of listed counts", "ReduceScatterOfUnevenShares", &algorithms::ring, &ring, 0},
    {"allgather", "Allgather", &algorithms::ring, &ring, 2},
    {"allgather of listed counts", "AllgatherOfUnevenShares", &algorithms::ring, &ring, 0},
    {"broadcast", "Broadcast", &algorithms::tree_broadcast, &tree, 5},
    {"reduce", "Reduce", &algorithms::tree_reduce, &tree, 5},
    {"alltoall", "Alltoall", &algorithms::pairwise_alltoall, &pairwise, 1},
    {"alltoallv", "Alltoallv", &algorithms::exchange, nullptr, 2},
    {"gather", "Gather", &algorithms::exchange, nullptr, 1},
    {"scatter", "Scatter", &algorithms::exchange, nullptr, 1},
    {"scan", "Scan", &algorithms::scan, nullptr, 3},
    {"exscan", "Exscan", &algorithms::scan, nullptr, 3},
};

// The bytes that have to leave this rank, where each part is sent once and by itself.
std::uint64_t bytes_of_parts(const CallBuffers<>& data) {
  const bool is_root = data.rank() == data.root();
  std::size_t elements = 0;
  if (data.call().kind == CallKind::gather && !is_root) elements = data.input().size();
  if (data.call().kind == CallKind::scatter && is_root) {
    elements = data.input().size() - data.output().size();
  }
  if (data.call().kind == CallKind::alltoallv) {
    elements = data.input().size() - data.parts_sent()[data.rank()];
  }
  return elements * sizeof(std::int32_t);
}

SimulatedTraffic simulate_call(const SimulatedWay& way, std::size_t ranks) {
  SimulatedRanks simulated(ranks, {});
  const Call& call = call_named(way.call);
  const std::size_t elements = way.elements + ranks * way.more_per_rank;
  SimulatedTraffic traffic;
  for (const std::size_t root : call.has_root() ? roots_of(ranks) : std::set<std::size_t>{0}) {
    PostedCall posted(call, ranks, elements, root);
    std::uint64_t parts = 0;
    for (const CallBuffers<>& data : posted.buffers()) parts += bytes_of_parts(data);
    const SimulatedTraffic sent = run(*way.algorithm, posted.posted(), simulated, way.form);
    expect(parts == 0 || sent.bytes == parts, "not every part was sent once", root);
    const std::string fault = posted.fault();
    expect(fault.empty(), fault.c_str(), root);
    add(traffic, sent);
  }
  return traffic;
}

// No rank may leave before the one that comes last has come.
SimulatedTraffic check_barrier(std::size_t ranks) {
  SimulatedRanks simulated(ranks, {});
  const std::vector<Posted> posted(ranks, posted_of(Collective::barrier, {}, {}));
  constexpr double late = 1e6;
  SimulatedTraffic traffic;
  for (const std::size_t last : roots_of(ranks)) {
    std::vector<double> starts(ranks, 0.0);
    starts[last] = late;
    const std::vector<double> ends =
        simulated.run(algorithms::dissemination_barrier, posted, 0.0, starts);
    traffic.operations += 1;
    for (std::size_t r = 0; r < ranks; ++r) {
      expect(ends[r] >= late, "it left a barrier before the last rank had come", r);
      const std::uint64_t messages = simulated.counters(r).sent_messages;
      expect(messages == transport::schedule::dissemination_rounds(ranks),
             "it did not send what the closed form says", r);
      traffic.messages += messages;
    }
  }
  return traffic;
}

}  // namespace

const std::vector<SimulatedCollective>& simulated_collectives() {
  static const std::vector<SimulatedCollective> all = [] {
    std::vector<SimulatedCollective> made;
    for (const SimulatedWay& way : ways) {
      made.push_back({way.name, [&way](std::size_t ranks) { return simulate_call(way, ranks); }});
    }
    made.push_back({"barrier", &check_barrier});
    made.push_back({"cuts by node of one array", &check_cuts_of_one_array});
    made.push_back({"cuts by node of shares", &check_cuts_of_shares});
    return made;
  }();
  return all;
}

}  // namespace rondo::test

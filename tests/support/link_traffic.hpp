#pragma once

// The traffic of one rank for one operation over links, in closed form. The counters must equal it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collective/algorithms.hpp"
#include "collective/flat/schedules.hpp"
#include "collective/hierarchical/hierarchical.hpp"

namespace rondo::test {

/// How an operation runs over links.
enum class LinkAlgorithm : std::uint8_t { ring, doubling, halving, tree, dissemination, pairwise };

/// The number and the bytes of the messages that one rank sends for one operation.
struct LinkTraffic {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;

  [[nodiscard]] bool operator==(const LinkTraffic&) const noexcept = default;
};

// Bytes of chunk `chunk` of a ring.
inline std::size_t ring_chunk_bytes(const transport::Posted& posted, std::size_t ranks,
                                    std::size_t chunk) {
  if (posted.fingerprint.collective == transport::shm::Collective::allreduce) {
    return transport::schedule::ring_chunk(posted.input.bytes(), ranks, chunk).size();
  }
  return posted.share_row_bytes(chunk) * posted.input.rows;
}

// For allreduce, reduce_scatter and allgather.
inline LinkTraffic ring_traffic_of(const transport::Posted& posted, std::size_t rank,
                                   std::size_t ranks, std::size_t segment_bytes) {
  using transport::schedule::ring_half;
  using transport::shm::Collective;
  std::size_t longest = 0;
  for (std::size_t chunk = 0; chunk < ranks; ++chunk) {
    longest = std::max(longest, ring_chunk_bytes(posted, ranks, chunk));
  }
  const Collective collective = posted.fingerprint.collective;
  const std::size_t half = ring_half(ranks);
  const std::size_t first = collective == Collective::allgather ? half : 0;
  const std::size_t last = collective == Collective::reduce_scatter ? half : 2 * half;
  const transport::schedule::Segments segments(longest, segment_bytes);
  LinkTraffic traffic;
  for (std::size_t step = first; step < last; ++step) {
    const std::size_t chunk = transport::schedule::ring_step(rank, ranks, step).send_chunk;
    const std::size_t bytes = ring_chunk_bytes(posted, ranks, chunk);
    traffic.messages += segments.count_in(bytes);
    traffic.bytes += bytes;
  }
  return traffic;
}

inline LinkTraffic doubling_traffic_of(std::size_t bytes, std::size_t rank, std::size_t ranks) {
  using transport::schedule::FoldRole;
  if (bytes == 0) return {};
  const transport::schedule::Folding folding = transport::schedule::fold(ranks);
  const std::size_t rounds = folding.rounds();
  switch (folding.role_of(rank)) {
    case FoldRole::single:
      return {.messages = rounds, .bytes = rounds * bytes};
    case FoldRole::proxy:
      return {.messages = rounds + 1, .bytes = (rounds + 1) * bytes};
    case FoldRole::folded:
      return {.messages = 1, .bytes = bytes};
  }
  return {};
}

// There and back, a rank sends in each round what it gives away and what it keeps, unless that is
// empty.
inline LinkTraffic halving_traffic_of(std::size_t bytes, std::size_t rank, std::size_t ranks) {
  using transport::schedule::FoldRole;
  if (bytes == 0) return {};
  const transport::schedule::Folding folding = transport::schedule::fold(ranks);
  const FoldRole role = folding.role_of(rank);
  if (role == FoldRole::folded) return {.messages = 1, .bytes = bytes};
  LinkTraffic traffic;
  if (role == FoldRole::proxy) traffic = {.messages = 1, .bytes = bytes};
  for (std::size_t round = 0; round < folding.rounds(); ++round) {
    const auto [kept, given] =
        transport::schedule::halving_round(bytes, folding.position_of(rank), round);
    for (const std::size_t half : {kept.size(), given.size()}) {
      traffic.messages += half > 0 ? 1 : 0;
      traffic.bytes += half;
    }
  }
  return traffic;
}

// A broadcast goes to all children, a reduction to the parent.
inline LinkTraffic tree_traffic_of(const transport::Posted& posted, std::size_t rank,
                                   std::size_t ranks, std::size_t segment_bytes) {
  const auto root = static_cast<std::size_t>(posted.fingerprint.root);
  const transport::schedule::Binomial tree(rank, root, ranks);
  const bool broadcast = posted.fingerprint.collective == transport::shm::Collective::broadcast;
  const std::size_t times = broadcast ? tree.children() : tree.is_root() ? 0 : 1;
  const std::size_t bytes = posted.input.bytes();
  const transport::schedule::Segments segments(bytes, segment_bytes);
  return {.messages = times * segments.count(), .bytes = times * bytes};
}

inline LinkTraffic pairwise_traffic_of(const transport::Posted& posted, std::size_t ranks,
                                       std::size_t segment_bytes) {
  const std::size_t part = posted.input.bytes() / ranks;
  const transport::schedule::Segments segments(part, segment_bytes);
  return {.messages = (ranks - 1) * segments.count(), .bytes = (ranks - 1) * part};
}

/// `rank` of `ranks` posted `posted`, with segments of up to `segment_bytes`.
inline LinkTraffic link_traffic_of(LinkAlgorithm algorithm, const transport::Posted& posted,
                                   std::size_t rank, std::size_t ranks, std::size_t segment_bytes) {
  switch (algorithm) {
    case LinkAlgorithm::ring:
      return ring_traffic_of(posted, rank, ranks, segment_bytes);
    case LinkAlgorithm::doubling:
      return doubling_traffic_of(posted.input.bytes(), rank, ranks);
    case LinkAlgorithm::halving:
      return halving_traffic_of(posted.input.bytes(), rank, ranks);
    case LinkAlgorithm::tree:
      return tree_traffic_of(posted, rank, ranks, segment_bytes);
    case LinkAlgorithm::dissemination:
      return {.messages = transport::schedule::dissemination_rounds(ranks)};
    case LinkAlgorithm::pairwise:
      return pairwise_traffic_of(posted, ranks, segment_bytes);
  }
  return {};
}

inline LinkAlgorithm link_algorithm_of(transport::AllreduceAlgorithm algorithm) {
  switch (algorithm) {
    case transport::AllreduceAlgorithm::doubling:
      return LinkAlgorithm::doubling;
    case transport::AllreduceAlgorithm::halving:
      return LinkAlgorithm::halving;
    case transport::AllreduceAlgorithm::ring:
      return LinkAlgorithm::ring;
  }
  return LinkAlgorithm::ring;
}

// For allreduce, reduce and broadcast: blocks of shards.
inline LinkTraffic hierarchical_whole_traffic_of(const transport::Posted& posted,
                                                 const transport::Hierarchy& levels,
                                                 const transport::AlgorithmTable& table,
                                                 std::size_t segment_bytes) {
  using transport::AllreduceAlgorithm;
  const bool sums_everywhere =
      posted.fingerprint.collective == transport::shm::Collective::allreduce;
  const std::size_t bytes = posted.input.bytes();
  const bool is_short =
      sums_everywhere ? table.pick(bytes) == AllreduceAlgorithm::doubling : table.is_short(bytes);
  transport::Hierarchy::Place root;
  if (!sums_everywhere) root = levels.place_of(static_cast<std::size_t>(posted.fingerprint.root));
  const transport::HierarchyPlan plan(bytes, is_short ? 1 : levels.shards, levels.nodes.size(),
                                      root.rank < levels.shards ? root.rank : 0);
  LinkTraffic sum;
  for (std::size_t block = 0; block < plan.blocks(); ++block) {
    transport::Posted shard;
    shard.fingerprint = posted.fingerprint;
    shard.fingerprint.root = static_cast<std::int32_t>(root.node);
    shard.input = {.rows = 1, .row_bytes = plan.shard(block, levels.node_rank).size()};
    const LinkAlgorithm algorithm =
        sums_everywhere ? link_algorithm_of(table.pick(bytes)) : LinkAlgorithm::tree;
    const LinkTraffic traffic =
        link_traffic_of(algorithm, shard, levels.node, levels.nodes.size(), segment_bytes);
    sum.messages += traffic.messages;
    sum.bytes += traffic.bytes;
  }
  return sum;
}

// For allgather and reduce_scatter: a ring for each block of the runs that this rank owns.
inline LinkTraffic hierarchical_shares_traffic_of(const transport::Posted& posted,
                                                  const transport::Hierarchy& levels,
                                                  const transport::AlgorithmTable& table,
                                                  std::size_t segment_bytes) {
  const std::size_t bytes = std::max(posted.input.bytes(), posted.output.bytes());
  const transport::SharesCut cut(levels, posted, table.is_short(bytes));
  LinkTraffic sum;
  std::vector<transport::Range> ranges;
  for (std::size_t block = 0; block < cut.blocks(); ++block) {
    cut.lay_out(block, ranges);
    transport::Posted runs;
    runs.fingerprint = posted.fingerprint;
    runs.input = {.rows = 1};
    for (std::size_t n = 0; n < ranges.size(); ++n) {
      runs.row_bytes_of.push_back(cut.run(block, n, ranges[n], levels.node_rank).size());
    }
    const LinkTraffic traffic = ring_traffic_of(runs, levels.node, ranges.size(), segment_bytes);
    sum.messages += traffic.messages;
    sum.bytes += traffic.bytes;
  }
  return sum;
}

/// For a hierarchical collective (the messages between nodes), with `levels` as this rank sees
/// them.
inline LinkTraffic hierarchical_traffic_of(const transport::Posted& posted,
                                           const transport::Hierarchy& levels,
                                           const transport::AlgorithmTable& table,
                                           std::size_t segment_bytes) {
  using transport::shm::Collective;
  const std::size_t nodes = levels.nodes.size();
  switch (posted.fingerprint.collective) {
    case Collective::allgather:
    case Collective::reduce_scatter:
      return hierarchical_shares_traffic_of(posted, levels, table, segment_bytes);
    case Collective::barrier:
      if (levels.node_rank > 0) return {};
      return {.messages = transport::schedule::dissemination_rounds(nodes)};
    default:
      return hierarchical_whole_traffic_of(posted, levels, table, segment_bytes);
  }
}

}  // namespace rondo::test

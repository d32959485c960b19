#include "fabric/link_traffic.hpp"

#include "fabric/binomial_schedule.hpp"
#include "fabric/chunks.hpp"
#include "fabric/dissemination_schedule.hpp"
#include "fabric/doubling_schedule.hpp"
#include "fabric/hierarchy_plan.hpp"
#include "fabric/ring_schedule.hpp"
#include "fabric/segments.hpp"

namespace rondo::transport {
namespace {

LinkTraffic of_ring(const Posted& posted, std::size_t rank, std::size_t ranks,
                    std::size_t segment_bytes) {
  using shm::Collective;
  const Collective collective = posted.fingerprint.collective;
  const std::size_t half = schedule::ring_half(ranks);
  const std::size_t first = collective == Collective::allgather ? half : 0;
  const std::size_t last = collective == Collective::reduce_scatter ? half : 2 * half;
  const Segments segments(longest_chunk(posted, ranks), segment_bytes);
  LinkTraffic traffic;
  for (std::size_t step = first; step < last; ++step) {
    const std::size_t bytes =
        chunk_bytes(posted, ranks, schedule::ring_step(rank, ranks, step).send_chunk);
    traffic.messages += segments.count_in(bytes);
    traffic.bytes += bytes;
  }
  return traffic;
}

LinkTraffic of_doubling(std::size_t bytes, std::size_t rank, std::size_t ranks) {
  if (bytes == 0) return {};
  const schedule::Folding folding = schedule::fold(ranks);
  const std::size_t rounds = folding.rounds();
  switch (folding.role_of(rank)) {
    case schedule::FoldRole::alone:
      return {.messages = rounds, .bytes = rounds * bytes};
    case schedule::FoldRole::keeper:
      return {.messages = rounds + 1, .bytes = (rounds + 1) * bytes};
    case schedule::FoldRole::guest:
      return {.messages = 1, .bytes = bytes};
  }
  return {};
}

// A broadcast goes to all children, a reduction to the parent.
LinkTraffic of_tree(const Posted& posted, std::size_t rank, std::size_t ranks,
                    std::size_t segment_bytes) {
  const bool down = posted.fingerprint.collective == shm::Collective::broadcast;
  const std::size_t bytes = posted.input.bytes();
  const schedule::Binomial tree(rank, static_cast<std::size_t>(posted.fingerprint.root), ranks);
  const std::size_t times = down ? tree.children() : tree.is_root() ? 0 : 1;
  return {.messages = times * Segments(bytes, segment_bytes).count(), .bytes = times * bytes};
}

LinkTraffic of_pairwise(const Posted& posted, std::size_t ranks, std::size_t segment_bytes) {
  const std::size_t part = posted.input.bytes() / ranks;
  return {.messages = (ranks - 1) * Segments(part, segment_bytes).count(),
          .bytes = (ranks - 1) * part};
}

}  // namespace

LinkTraffic link_traffic_of(LinkAlgorithm algorithm, const Posted& posted, std::size_t rank,
                            std::size_t ranks, std::size_t segment_bytes) noexcept {
  switch (algorithm) {
    case LinkAlgorithm::ring:
      return of_ring(posted, rank, ranks, segment_bytes);
    case LinkAlgorithm::doubling:
      return of_doubling(posted.input.bytes(), rank, ranks);
    case LinkAlgorithm::tree:
      return of_tree(posted, rank, ranks, segment_bytes);
    case LinkAlgorithm::dissemination:
      return {.messages = schedule::dissemination_rounds(ranks)};
    case LinkAlgorithm::pairwise:
      return of_pairwise(posted, ranks, segment_bytes);
  }
  return {};
}

LinkTraffic hierarchical_traffic_of(const Posted& posted, const AlgorithmTable& table,
                                    std::size_t shards, std::size_t place, std::size_t node,
                                    std::size_t nodes, std::size_t segment_bytes) noexcept {
  const std::size_t bytes = posted.input.bytes();
  const bool is_short = table.pick(bytes) == AllreduceAlgorithm::doubling;
  const HierarchyPlan plan(bytes, is_short ? 1 : shards);
  LinkTraffic sum;
  for (std::size_t block = 0; block < plan.blocks(); ++block) {
    Posted shard;
    shard.fingerprint = posted.fingerprint;
    shard.input = {.rows = 1, .row_bytes = plan.shard(block, place).size()};
    const bool rings = table.pick(shard.input.row_bytes) == AllreduceAlgorithm::ring;
    const LinkTraffic traffic = link_traffic_of(
        rings ? LinkAlgorithm::ring : LinkAlgorithm::doubling, shard, node, nodes, segment_bytes);
    sum.messages += traffic.messages;
    sum.bytes += traffic.bytes;
  }
  return sum;
}

}  // namespace rondo::transport

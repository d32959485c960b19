#pragma once

#include <cstddef>
#include <cstdint>

#include "collective/choice.hpp"
#include "collective/operation.hpp"

namespace rondo::transport {

/// How an operation runs over links.
enum class LinkAlgorithm : std::uint8_t { ring, doubling, tree, dissemination, pairwise };

/// What one rank sends for one operation.
struct LinkTraffic {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;

  [[nodiscard]] bool operator==(const LinkTraffic&) const noexcept = default;
};

/// In closed form; the counters equal it. `rank` of `ranks` posted `posted`, with segments of up
/// to `segment_bytes`.
[[nodiscard]] LinkTraffic link_traffic_of(LinkAlgorithm algorithm, const Posted& posted,
                                          std::size_t rank, std::size_t ranks,
                                          std::size_t segment_bytes) noexcept;

/// Of a hierarchical allreduce (the messages between nodes): this rank is member `place` of its
/// node, one of `nodes` in the order of the group; `shards` as in Hierarchy.
[[nodiscard]] LinkTraffic hierarchical_traffic_of(const Posted& posted, const AlgorithmTable& table,
                                                  std::size_t shards, std::size_t place,
                                                  std::size_t node, std::size_t nodes,
                                                  std::size_t segment_bytes) noexcept;

}  // namespace rondo::transport

#pragma once

#include <cstddef>
#include <cstdint>

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

}  // namespace rondo::transport

#pragma once

#include <cstddef>
#include <cstdint>

#include <rondo/transport/counters.hpp>

#include "collective/operation.hpp"
#include "node/slots.hpp"
#include "node/staging.hpp"

namespace rondo::transport {

/// What one rank moves for one operation.
struct Traffic {
  std::uint64_t loaded_bytes = 0;  ///< from memory that peers wrote
  std::uint64_t stored_bytes = 0;  ///< into peers' memory

  [[nodiscard]] bool operator==(const Traffic&) const noexcept = default;
};

/// In closed form; the counters equal it. `rank` of `ranks` posted `posted`.
[[nodiscard]] Traffic traffic_of(const Posted& posted, Protocol protocol, std::size_t rank,
                                 std::size_t ranks) noexcept;

/// The slices that one rank reduces of a staged allreduce or reduce of `bytes` bytes.
[[nodiscard]] std::uint64_t staged_slice_bytes(std::size_t bytes, std::size_t rank,
                                               std::size_t ranks) noexcept;

/// Adds a finished operation to the counters.
inline void count(Counters& counters, const Traffic& traffic) noexcept {
  counters.operations += 1;
  counters.loaded_bytes += traffic.loaded_bytes;
  counters.stored_bytes += traffic.stored_bytes;
}

}  // namespace rondo::transport

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "bench/samples.hpp"

namespace rondo::tools {

/// One size in one kind of memory. Times are those of the slowest rank.
struct BenchRow {
  std::size_t bytes = 0;
  std::size_t count = 0;
  std::string type = {};
  std::string op = {};  ///< sum, min, max, or none
  int ranks = 0;
  std::string memory = {};  ///< arena, private, or none
  std::string place = {};   ///< in, out, or none
  Summary time = {};
  double bus_factor = 1.0;
  std::int64_t wrong = 0;               ///< elements, over all ranks
  std::optional<double> limit_us = {};  ///< median of one pass over shared memory
  std::string injected = {};            ///< the delays that were injected into links; may be empty

  /// Bytes per second as the caller sees it, in 1e9: by the median.
  [[nodiscard]] double algorithm_gb_per_second() const noexcept;
  /// The same as if the limit were the links, as nccl-tests define it.
  [[nodiscard]] double bus_gb_per_second() const noexcept;
  /// Of the limit's bandwidth.
  [[nodiscard]] double percent() const noexcept;
};

}  // namespace rondo::tools

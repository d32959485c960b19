#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/samples.hpp"

namespace rondo::transport {
class World;
}

namespace rondo::tools {

enum class BenchMemory { arena, private_memory };

struct AllreduceBench {
  std::vector<std::size_t> sizes = {};
  std::vector<BenchMemory> memories = {};
  int iterations = 0;  ///< per size; 0: 2000 below 64 KiB, 300 below 4 MiB, else 30
  bool limit = false;  ///< measure the one-pass limit in turn
};

/// One size in one kind of memory. Times are those of the slowest rank.
struct AllreduceRow {
  std::size_t bytes = 0;
  int ranks = 0;
  std::string memory = {};  ///< "arena" or "private"
  Summary time = {};
  std::int64_t wrong = 0;               ///< elements, over all ranks
  std::optional<double> limit_us = {};  ///< median

  /// Bytes per second as the caller sees it, in 1e9.
  [[nodiscard]] double algorithm_gb_per_second() const noexcept;
  /// The same as if the limit were the links: times 2 (P-1)/P.
  [[nodiscard]] double bus_gb_per_second() const noexcept;
  /// Of the limit's bandwidth.
  [[nodiscard]] double percent() const noexcept;
};

/// Measures allreduce in place, of floats. Before each timed region every rank rewrites its
/// buffer, as backward does, and passes a barrier. With `limit` rounds of the two take turns, so
/// that both see the same neighbours. Collective; the rows are the same on every rank.
[[nodiscard]] std::vector<AllreduceRow> measure_allreduce(transport::World& world,
                                                          const AllreduceBench& bench);

}  // namespace rondo::tools

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <rondo/transport/element.hpp>

#include "bench/operation.hpp"
#include "table.hpp"

namespace rondo::transport {
class World;
}

namespace rondo::tools {

/// Iterations of the smallest and of the largest sizes, unless the user says how many.
inline constexpr int most_iterations = 2000;
inline constexpr int least_iterations = 30;

/// A rank's use of its buffers between two calls.
enum class BufferUse {
  untouched,
  rewritten,  ///< before each timed region, as backward does
  read_back,  ///< rewritten before, and the result read in the timed region, as an optimizer does
};

enum class BenchMemory { arena, private_memory, adopted };

/// The measurement to make.
struct Bench {
  const OperationKind* kind = nullptr;
  std::vector<std::size_t> sizes = {};     ///< bytes; one, of any value, for what has no size
  std::vector<BenchMemory> memories = {};  ///< likewise
  std::vector<bool> in_place = {};         ///< one row for each
  transport::ElementType type = transport::ElementType::f32;
  transport::ReduceOp reduction = transport::ReduceOp::sum;
  BufferUse use = BufferUse::rewritten;
  int iterations = 0;  ///< per size; 0: the most below 64 KiB, 300 below 4 MiB, else the least
  int warm_up = -1;    ///< -1: a tenth of the iterations, and 2
  bool limit = false;  ///< measure one pass over shared memory in turn
  int first = 0;       ///< of the two, where two take part
  int peer = -1;       ///< of rank 0 where two take part; -1: the last rank
  int groups = 2;      ///< where groups take part: rank r is in group r modulo this
  bool both_ways = false;
};

/// The summary of many measurements of one thing, in microseconds.
struct Summary {
  double min_us = 0.0;
  double median_us = 0.0;
  double p99_us = 0.0;
};

/// Throws std::invalid_argument when there is none.
[[nodiscard]] Summary summarize(std::vector<double> microseconds);

/// One size in one kind of memory. Times are those of the slowest rank.
struct BenchRow {
  std::size_t bytes = 0;
  std::size_t count = 0;
  std::string type = {};
  std::string op = {};  ///< as in --op, or none
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
  /// The bandwidth that was reached, in percent of the limit's.
  [[nodiscard]] double percent() const noexcept;
};

/// How many of the iterations each round takes, in which an operation and its limit are measured in
/// turn: up to five rounds that are alike, and never empty.
[[nodiscard]] std::vector<int> rounds_of(int iterations);

/// Measures all that `bench` asks for. Collective; the rows are the same on every rank.
[[nodiscard]] std::vector<BenchRow> measure(transport::World& world, const Bench& bench);

/// The delays that RONDO_LATENCY_US and RONDO_BANDWIDTH_GBS inject into links, as in "2us+1GB/s";
/// empty when they inject none.
[[nodiscard]] std::string injected_delays();

/// The rows under names that are stable: bytes, count, type, op, ranks, memory, place, min_us,
/// median_us, p99_us, algbw_GBs, busbw_GBs, wrong; with a limit also limit_us and percent (of its
/// bandwidth); where delays were injected into links also injected, which says how much.
[[nodiscard]] Table table_of(const std::vector<BenchRow>& rows);

/// What is wrong with the rows, a line each: wrong elements, and bus bandwidths below
/// `least_bus_gb_per_second`.
[[nodiscard]] std::vector<std::string> complaints(const std::vector<BenchRow>& rows,
                                                  double least_bus_gb_per_second);

/// Writes to stderr what the numbers were measured with: versions, ranks and nodes, the link of
/// each level, how ranks wait, and where rank 0 is bound. Lines begin with "#".
void print_header(const transport::World& world, const Bench& bench, const std::string& wait,
                  int threads);

}  // namespace rondo::tools

#pragma once

#include <string>
#include <vector>

#include "bench/measure.hpp"
#include "table.hpp"

namespace rondo::tools {

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

#pragma once

#include <string>
#include <vector>

#include "bench/row.hpp"

namespace rondo::tools {

/// The rows under their column names: aligned, comma-separated, or as one JSON array of objects.
///
/// The names are those of the JSON objects: bytes, count, type, op, ranks, memory, place, min_us,
/// median_us, p99_us, algbw_GBs, busbw_GBs, wrong; with a limit also limit_us and percent (of its
/// bandwidth); where delays were injected into links also injected, which says how much.
[[nodiscard]] std::string as_table(const std::vector<BenchRow>& rows);
[[nodiscard]] std::string as_csv(const std::vector<BenchRow>& rows);
[[nodiscard]] std::string as_json(const std::vector<BenchRow>& rows);

}  // namespace rondo::tools

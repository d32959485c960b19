#pragma once

#include <string>
#include <vector>

#include "bench/allreduce_bench.hpp"

namespace rondo::tools {

/// The rows under their column names: aligned, comma-separated, or as one JSON array of objects.
/// The names are those of the JSON objects: bytes, ranks, memory, min_us, median_us, p99_us,
/// algbw_GBs, busbw_GBs, wrong; with a limit also limit_us and percent (of its bandwidth).
[[nodiscard]] std::string as_table(const std::vector<AllreduceRow>& rows);
[[nodiscard]] std::string as_csv(const std::vector<AllreduceRow>& rows);
[[nodiscard]] std::string as_json(const std::vector<AllreduceRow>& rows);

}  // namespace rondo::tools

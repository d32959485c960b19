#pragma once

#include <string>
#include <vector>

#include "bench/row.hpp"

namespace rondo::tools {

/// What is wrong with the rows, a line each: wrong elements, and bus bandwidths below
/// `least_bus_gb_per_second`.
[[nodiscard]] std::vector<std::string> complaints(const std::vector<BenchRow>& rows,
                                                  double least_bus_gb_per_second);

}  // namespace rondo::tools

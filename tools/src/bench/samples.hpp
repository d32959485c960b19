#pragma once

#include <vector>

namespace rondo::tools {

/// What many measurements of one thing come to, in microseconds.
struct Summary {
  double min_us = 0.0;
  double median_us = 0.0;
  double p99_us = 0.0;
};

/// Throws std::invalid_argument when there is none.
[[nodiscard]] Summary summarize(std::vector<double> microseconds);

}  // namespace rondo::tools

#include "bench/row.hpp"

namespace rondo::tools {

double BenchRow::algorithm_gb_per_second() const noexcept {
  return static_cast<double>(bytes) / time.median_us / 1e3;
}

double BenchRow::bus_gb_per_second() const noexcept {
  return algorithm_gb_per_second() * bus_factor;
}

double BenchRow::percent() const noexcept {
  return limit_us ? 100.0 * *limit_us / time.median_us : 0.0;
}

}  // namespace rondo::tools

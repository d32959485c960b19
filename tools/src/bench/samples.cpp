#include "bench/samples.hpp"

#include <algorithm>
#include <stdexcept>

namespace rondo::tools {

Summary summarize(std::vector<double> microseconds) {
  if (microseconds.empty()) throw std::invalid_argument("there are no samples");
  std::ranges::sort(microseconds);
  const std::size_t count = microseconds.size();
  const std::size_t p99 = std::min(count - 1, count * 99 / 100);
  return {microseconds.front(), microseconds[count / 2], microseconds[p99]};
}

}  // namespace rondo::tools

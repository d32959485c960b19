#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

#include <rondo/sync/lazy.hpp>

namespace rondo::sync {
namespace {

bool all_times(std::span<const double> values) {
  return std::ranges::all_of(values, [](double value) { return value >= 0.0; });
}

}  // namespace

std::size_t count_unhidden_layers(std::span<const double> backward_left,
                                  std::span<const double> reduction) {
  if (backward_left.size() != reduction.size()) {
    throw std::invalid_argument("lazy: " + std::to_string(backward_left.size()) +
                                " backward times, but " + std::to_string(reduction.size()) +
                                " reduction times");
  }
  if (!all_times(backward_left) || !all_times(reduction)) {
    throw std::invalid_argument("lazy: a measured time is negative or not a number");
  }
  double end = -std::numeric_limits<double>::infinity();  // of the last reduction; backward's is 0
  for (std::size_t layer = backward_left.size(); layer-- > 0;) {
    end = std::max(end, -backward_left[layer]) + reduction[layer];
    if (end > 0.0) return layer + 1;
  }
  return 0;
}

}  // namespace rondo::sync

// What is concluded from measured times, without measuring: the line that messages follow, and the
// sizes at which one algorithm becomes faster than another.

#include "bench/fit.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <stdexcept>

namespace rondo::tools {
namespace {

// The index of the algorithm for each size: never decreasing, with the least sum of logarithms.
std::vector<std::size_t> choose(std::size_t sizes, const std::vector<AlgorithmTimes>& algorithms) {
  const std::size_t count = algorithms.size();
  // cost[a]: of the sizes so far, the last of which has an algorithm up to a.
  std::vector<double> cost(count, 0.0);
  std::vector<std::vector<std::size_t>> last(sizes, std::vector<std::size_t>(count));
  for (std::size_t s = 0; s < sizes; ++s) {
    double least = std::numeric_limits<double>::infinity();
    std::size_t best = 0;
    for (std::size_t a = 0; a < count; ++a) {
      const double here = cost[a] + std::log(algorithms[a].microseconds.at(s));
      if (here < least) {
        least = here;
        best = a;
      }
      cost[a] = least;
      last[s][a] = best;
    }
  }
  std::vector<std::size_t> chosen(sizes);
  std::size_t most = count - 1;
  for (std::size_t s = sizes; s-- > 0;) {
    chosen[s] = last[s][most];
    most = chosen[s];
  }
  return chosen;
}

// Sizes grow by factors, so the middle of two is their geometric mean.
std::size_t boundary(std::size_t below, std::size_t above) {
  return static_cast<std::size_t>(
      std::llround(std::sqrt(static_cast<double>(below) * static_cast<double>(above))));
}

}  // namespace

// Neighbouring sizes with the same algorithm become one entry.
std::string best_table(const std::vector<std::size_t>& sizes,
                       const std::vector<AlgorithmTimes>& algorithms) {
  if (sizes.empty() || algorithms.empty()) throw std::invalid_argument("there are no times");
  const std::vector<std::size_t> chosen = choose(sizes.size(), algorithms);
  std::string table;
  std::string from = "0";
  for (std::size_t s = 0; s < sizes.size(); ++s) {
    const bool ends = s + 1 == sizes.size();
    if (!ends && chosen[s + 1] == chosen[s]) continue;
    const std::string to = ends ? "max" : short_size(boundary(sizes[s], sizes[s + 1]));
    table += fmt::format("{}{}:{}-{}", table.empty() ? "" : ";", algorithms[chosen[s]].algorithm,
                         from, to);
    from = to;
  }
  return table;
}

std::string short_size(std::size_t bytes) {
  constexpr std::size_t kibibyte = 1024;
  constexpr std::size_t mebibyte = kibibyte * kibibyte;
  if (bytes > 0 && bytes % mebibyte == 0) return fmt::format("{}m", bytes / mebibyte);
  if (bytes > 0 && bytes % kibibyte == 0) return fmt::format("{}k", bytes / kibibyte);
  return fmt::format("{}", bytes);
}

// Minimises the sum of ((t - alpha - beta n) / t)^2, with u = 1 / t and v = n / t.
LineFit fit_line(std::span<const TimedSize> samples) {
  double u = 0.0;
  double v = 0.0;
  double uu = 0.0;
  double uv = 0.0;
  double vv = 0.0;
  for (const TimedSize& sample : samples) {
    if (!(sample.seconds > 0.0)) throw std::invalid_argument("a time is not positive");
    const double inverse = 1.0 / sample.seconds;
    const double slope = static_cast<double>(sample.bytes) * inverse;
    u += inverse;
    v += slope;
    uu += inverse * inverse;
    uv += inverse * slope;
    vv += slope * slope;
  }
  const double determinant = uu * vv - uv * uv;
  if (samples.size() < 2 || !(determinant > 0.0)) {
    throw std::invalid_argument("a line needs two sizes");
  }
  LineFit fit{.alpha_seconds = (u * vv - v * uv) / determinant,
              .beta_seconds_per_byte = (v * uu - u * uv) / determinant};
  // The best of those at the edge of what makes sense.
  if (fit.alpha_seconds < 0.0) fit = {.alpha_seconds = 0.0, .beta_seconds_per_byte = v / vv};
  if (fit.beta_seconds_per_byte < 0.0) fit = {.alpha_seconds = u / uu, .beta_seconds_per_byte = 0};
  return fit;
}

}  // namespace rondo::tools

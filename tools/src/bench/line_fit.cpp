#include "bench/line_fit.hpp"

#include <stdexcept>

namespace rondo::tools {

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

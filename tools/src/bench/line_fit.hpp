#pragma once

#include <cstddef>
#include <span>

namespace rondo::tools {

/// How long a message of so many bytes took.
struct TimedSize {
  std::size_t bytes = 0;
  double seconds = 0.0;
};

/// Time as a line over bytes: alpha + beta * bytes.
struct LineFit {
  double alpha_seconds = 0.0;
  double beta_seconds_per_byte = 0.0;
};

/// The line with the least squares of relative errors: small messages count as much as large ones.
/// Neither coefficient is negative. Throws std::invalid_argument for fewer than two sizes, and for
/// times that are not positive.
[[nodiscard]] LineFit fit_line(std::span<const TimedSize> samples);

}  // namespace rondo::tools

#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace rondo::tools {

/// How long one algorithm took for each of several sizes.
struct AlgorithmTimes {
  std::string algorithm = {};
  std::vector<double> microseconds = {};  ///< as many as there are sizes
};

/// The table "rd:0-16k;ring:16k-max" with which `sizes`, in ascending order, take the least time:
/// the product of all times is the smallest. The algorithms stand in the order in which they are
/// good for ever larger sizes, so a table changes from one to another at most once. It changes
/// between two sizes, at their geometric mean. Throws std::invalid_argument when there is nothing.
[[nodiscard]] std::string best_table(const std::vector<std::size_t>& sizes,
                                     const std::vector<AlgorithmTimes>& algorithms);

/// "100", "16k", "1m": whole powers of 1024 where they can be.
[[nodiscard]] std::string short_size(std::size_t bytes);

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

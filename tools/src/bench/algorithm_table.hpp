#pragma once

#include <cstddef>
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

}  // namespace rondo::tools

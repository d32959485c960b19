#pragma once

#include <cstddef>
#include <memory_resource>
#include <span>
#include <vector>

#include <rondo/sync/replica.hpp>
#include <rondo/transport/communicator.hpp>

namespace rondo::sync {

/// The plain mean of the statistics of the ranks that hold the same, for evaluation.
///
/// Summed in double, where sums of equal floats are exact: ranks that agree get back what they
/// gave.
class StatisticsMean {
 public:
  explicit StatisticsMean(const Replica& replica);

  /// Is there anything to reduce?
  [[nodiscard]] bool reduces() const noexcept;

  /// Writes the mean of the ranks' `mine` to `mean`. Collective, unless reduces() is false.
  void compute(std::span<const float> mine, std::span<float> mean);

 private:
  transport::Communicator& ranks_;
  std::pmr::vector<double> sums_;  // in the arena
};

}  // namespace rondo::sync

#pragma once

#include <cstddef>
#include <memory_resource>
#include <span>
#include <vector>

#include <rondo/transport/world.hpp>

namespace rondo::sync {

/// The plain mean of every rank's statistics, for evaluation.
///
/// Summed in double, in rank order: ranks that agree get back exactly what they gave.
class StatisticsMean {
 public:
  StatisticsMean(transport::World& world, std::size_t size);

  /// Is there anything to reduce?
  [[nodiscard]] bool reduces() const noexcept;

  /// Writes the mean of all ranks' `mine` to `mean`. Collective, unless reduces() is false.
  void compute(std::span<const float> mine, std::span<float> mean);

 private:
  transport::World& world_;
  std::pmr::vector<double> sums_;  // in the arena
};

}  // namespace rondo::sync

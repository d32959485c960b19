#include "replica/statistics_mean.hpp"

#include <algorithm>

namespace rondo::sync {

StatisticsMean::StatisticsMean(transport::World& world, std::size_t size)
    : world_(world), sums_(size, 0.0, &world.arena()) {}

bool StatisticsMean::reduces() const noexcept { return world_.size() > 1 && !sums_.empty(); }

void StatisticsMean::compute(std::span<const float> mine, std::span<float> mean) {
  if (!reduces()) {
    std::ranges::copy(mine, mean.begin());
    return;
  }
  std::ranges::copy(mine, sums_.begin());
  world_.communicator().allreduce(std::span(sums_)).wait();
  const auto ranks = static_cast<double>(world_.size());
  std::ranges::transform(sums_, mean.begin(),
                         [ranks](double sum) { return static_cast<float>(sum / ranks); });
}

}  // namespace rondo::sync

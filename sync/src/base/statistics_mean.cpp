#include "base/statistics_mean.hpp"

#include <algorithm>

#include <rondo/transport/world.hpp>

namespace rondo::sync {

StatisticsMean::StatisticsMean(const Replica& replica)
    : ranks_(replica.statistics_over != nullptr ? *replica.statistics_over
                                                : replica.world->communicator()),
      sums_(replica.statistics.size(), 0.0, &replica.world->arena()) {}

bool StatisticsMean::reduces() const noexcept { return ranks_.size() > 1 && !sums_.empty(); }

void StatisticsMean::compute(std::span<const float> mine, std::span<float> mean) {
  if (!reduces()) {
    std::ranges::copy(mine, mean.begin());
    return;
  }
  std::ranges::copy(mine, sums_.begin());
  ranks_.allreduce(std::span(sums_)).wait();
  const auto ranks = static_cast<double>(ranks_.size());
  std::ranges::transform(sums_, mean.begin(),
                         [ranks](double sum) { return static_cast<float>(sum / ranks); });
}

}  // namespace rondo::sync

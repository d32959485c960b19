// Means over ranks: of statistics for evaluation, and of whole models in training by averages.

#include <rondo/sync/scheme_base.hpp>

#include <algorithm>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "flat/flat.hpp"

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

PackedMean::PackedMean(const Replica& replica, std::size_t state_size)
    : replica_(replica),
      memory_(replica.parameters.size() + replica.statistics.size() + state_size + 1, 0.0F,
              &replica.world->arena()),
      packed_(memory_) {}

void PackedMean::pack(std::span<const float> start, std::span<const float> state, float weight) {
  packed_ = std::span(memory_).first(replica_.parameters.size() + replica_.statistics.size() +
                                     state.size() + 1);
  if (start.empty()) {
    std::ranges::copy(replica_.parameters, displacement().begin());
  } else {
    flat::subtract(displacement(), replica_.parameters, start);
  }
  std::ranges::copy(replica_.statistics, statistics().begin());
  std::ranges::copy(state, this->state().begin());
  weigh(weight);
  packed_.back() = weight;
}

// Divided by what has arrived: the sum of the ranks' weights lies behind the values.
void PackedMean::reduce(transport::Communicator& group) {
  group.allreduce(packed_).wait();
  flat::scale(statistics(), static_cast<float>(1.0 / group.size()));
  if (has_weight()) weigh(static_cast<float>(1.0 / static_cast<double>(packed_.back())));
}

// A weight of exactly 1 is not multiplied by, so that equal shares cost nothing.
void PackedMean::weigh(float factor) {
  if (factor == 1.0F) return;
  flat::scale(displacement(), factor);
  flat::scale(state(), factor);
}

}  // namespace rondo::sync

#include "schemes/packed_mean.hpp"

#include <algorithm>

#include <rondo/transport/communicator.hpp>

#include "flat/flat.hpp"

namespace rondo::sync {

PackedMean::PackedMean(const Replica& replica, std::size_t state_size)
    : replica_(replica),
      memory_(replica.parameters.size() + replica.statistics.size() + state_size + 1, 0.0F,
              &replica.world->arena()),
      packed_(memory_) {}

void PackedMean::pack(std::span<const float> start, std::span<const float> state, float weight) {
  packed_ = std::span(memory_).first(replica_.parameters.size() + replica_.statistics.size() +
                                     state.size() + 1);
  flat::subtract(displacement(), replica_.parameters, start);
  std::ranges::copy(replica_.statistics, packed_statistics().begin());
  std::ranges::copy(state, packed_state().begin());
  weigh(weight);
  packed_.back() = weight;
}

void PackedMean::reduce(transport::Communicator& group) {
  group.allreduce(packed_).wait();
  flat::scale(packed_statistics(), static_cast<float>(1.0 / group.size()));
  if (has_weight()) weigh(static_cast<float>(1.0 / static_cast<double>(packed_.back())));
}

void PackedMean::weigh(float factor) {
  if (factor == 1.0F) return;
  flat::scale(displacement(), factor);
  flat::scale(packed_state(), factor);
}

}  // namespace rondo::sync

#include "averaging/packed_mean.hpp"

#include <algorithm>

#include <rondo/transport/communicator.hpp>

#include "flat/flat.hpp"

namespace rondo::sync {

PackedMean::PackedMean(const Replica& replica, std::size_t state_size)
    : replica_(replica),
      memory_(replica.parameters.size() + replica.statistics.size() + state_size, 0.0F,
              &replica.world->arena()),
      packed_(memory_) {}

void PackedMean::pack(std::span<const float> start, std::span<const float> state) {
  const std::size_t size = replica_.parameters.size();
  const std::size_t statistics = replica_.statistics.size();
  packed_ = std::span(memory_).first(size + statistics + state.size());
  flat::subtract(packed_.first(size), replica_.parameters, start);
  std::ranges::copy(replica_.statistics, packed_.subspan(size).begin());
  std::ranges::copy(state, packed_.subspan(size + statistics).begin());
}

void PackedMean::reduce(transport::Communicator& group) {
  group.allreduce(packed_).wait();
  flat::scale(packed_, static_cast<float>(1.0 / group.size()));
}

}  // namespace rondo::sync

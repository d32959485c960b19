#pragma once

#include <array>
#include <cstddef>
#include <span>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

namespace rondo::train {

/// The element-wise sum over all ranks, the same bits on each. Collective.
template <std::size_t N>
[[nodiscard]] std::array<double, N> sum_over_ranks(transport::World& world,
                                                   std::array<double, N> values) {
  world.communicator().allreduce(std::span<double>(values)).wait();
  return values;
}

}  // namespace rondo::train

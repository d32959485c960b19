#include "grid/halo_return.hpp"

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>

#include "grid/replica.hpp"

namespace rondo::train {

Redistribution halo_return(const Partition& home, std::span<const Box> computed, int rank) {
  if (computed.size() != static_cast<std::size_t>(home.ranks())) {
    throw std::invalid_argument("halo return: " + std::to_string(computed.size()) +
                                " boxes were computed by " + std::to_string(home.ranks()) +
                                " ranks");
  }
  const int mine = home.block_of(rank);
  const Box own = home.box(mine);
  const Box& sums = computed[static_cast<std::size_t>(rank)];
  const int replica = replica_of(home, rank);
  Redistribution plan{.kept = intersection(own, sums)};
  for (int block = 0; block < home.blocks(); ++block) {
    if (block == mine) continue;
    const int peer = home.ranks_of(block)[static_cast<std::size_t>(replica)];
    const Box there = intersection(home.box(block), sums);
    const Box here = intersection(own, computed[static_cast<std::size_t>(peer)]);
    if (!there.empty()) plan.sends.push_back({peer, there});
    if (!here.empty()) plan.receives.push_back({peer, here});
  }
  std::ranges::sort(plan.receives, {}, &Transfer::peer);
  return plan;
}

}  // namespace rondo::train

#pragma once

#include <string>
#include <vector>

#include <rondo/transport/error.hpp>

#include "bootstrap/side_channel.hpp"
#include "bootstrap/wire.hpp"

namespace rondo::transport::bootstrap {

/// One allgather over `channel`: what all ranks have sent, in rank order. `Card` is what wire.hpp
/// can pack.
template <typename Card>
std::vector<Card> exchange(SideChannel& channel, const Card& mine) {
  std::vector<Card> cards;
  for (const std::string& bytes : channel.allgather(pack(mine))) {
    if (unpack(bytes, cards.emplace_back())) continue;
    throw Error(Errc::rendezvous_failed,
                "rendezvous: a rank sent something else than its address card; do all ranks run "
                "the same version?");
  }
  return cards;
}

}  // namespace rondo::transport::bootstrap

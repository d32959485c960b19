#pragma once

#include <memory>
#include <string>
#include <vector>

#include <rondo/transport/world.hpp>

#include "bootstrap/side_channel.hpp"
#include "links/link.hpp"
#include "recorder/recorder.hpp"
#include "shm/descriptor.hpp"
#include "shm/rank_memory.hpp"

namespace rondo::transport {

/// One rank of a World as all others see it. Ranks that are threads of one process share these.
struct Peer {
  std::shared_ptr<shm::RankMemory> memory = {};     ///< none for ranks out of reach
  std::shared_ptr<shm::Descriptor> process = {};    ///< a pidfd; none for threads and far ranks
  std::shared_ptr<recorder::Memory> recorder = {};  ///< what it records; none out of reach
  RankInfo info = {};
};

/// What the rendezvous gives one rank.
struct Membership {
  int rank = 0;
  std::vector<Peer> peers = {};
  bool oversubscribed = false;
  /// Messages to ranks of this node.
  std::unique_ptr<Link> local = {};
  /// Messages to ranks of other nodes; none when there is one node.
  std::unique_ptr<Link> fabric = {};
  /// News of ranks on other nodes; none when there is one node.
  std::unique_ptr<rendezvous::SideChannel> side_channel = {};
  std::string route = "none";
};

}  // namespace rondo::transport

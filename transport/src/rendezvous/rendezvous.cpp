#include "rendezvous/rendezvous.hpp"

#include <unistd.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "rendezvous/cpus.hpp"
#include "rendezvous/environment.hpp"
#include "rendezvous/local_meeting.hpp"
#include "world_core.hpp"

namespace rondo::transport::rendezvous {

std::shared_ptr<WorldCore> attach(const WorldOptions& options) {
  const auto placement = read_environment();
  if (!placement) return make_threads(1, options).front();
  Meeting meeting = meet(*placement, options);
  return std::make_shared<WorldCore>(placement->rank, std::move(meeting.peers),
                                     outnumber_cpus(meeting.cpus), options);
}

std::vector<std::shared_ptr<WorldCore>> make_threads(int ranks, const WorldOptions& options) {
  if (ranks < 1) throw std::invalid_argument("rondo::transport: a World has at least one rank");
  const auto reserve = shm::Reserve::of(ranks);
  std::vector<Peer> peers;
  peers.reserve(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    peers.push_back({.memory = shm::RankMemory::create(reserve, random_nonce()),
                     .process = nullptr,
                     .info = {.pid = ::getpid(), .host = host_name()}});
  }
  const bool outnumber =
      outnumber_cpus(std::vector<cpu_set_t>(static_cast<std::size_t>(ranks), own_cpus()));
  std::vector<std::shared_ptr<WorldCore>> worlds;
  worlds.reserve(peers.size());
  for (int r = 0; r < ranks; ++r) {
    worlds.push_back(std::make_shared<WorldCore>(r, peers, outnumber, options));
  }
  return worlds;
}

}  // namespace rondo::transport::rendezvous

#include "bootstrap/rendezvous.hpp"

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <future>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include <rondo/transport/error.hpp>

#include "bootstrap/cpus.hpp"
#include "bootstrap/environment.hpp"
#include "bootstrap/local_meeting.hpp"
#include "bootstrap/node_meeting.hpp"
#include "bootstrap/store_meeting.hpp"
#include "bootstrap/thread_hub.hpp"
#include "core/world_core.hpp"

namespace rondo::transport::rendezvous {
namespace {

std::vector<int> all_ranks(int ranks) {
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Ranks that are threads share their mappings: whom one reaches is a matter of what it is given.
std::vector<Peer> make_shared_peers(int ranks) {
  const auto reserve = shm::Reserve::of(ranks);
  std::vector<Peer> peers;
  for (int r = 0; r < ranks; ++r) {
    peers.push_back({.memory = shm::RankMemory::create(reserve, random_nonce()),
                     .process = nullptr,
                     .recorder = std::make_shared<recorder::Memory>(recorder::Memory::create()),
                     .info = {.pid = ::getpid(), .host = host_name()}});
  }
  return peers;
}

Meeting meet_threads(const std::vector<Peer>& peers, const std::vector<int>& members) {
  Meeting meeting;
  meeting.peers.resize(peers.size());
  for (const int rank : members) {
    meeting.peers[static_cast<std::size_t>(rank)] = peers[static_cast<std::size_t>(rank)];
  }
  meeting.cpus.assign(peers.size(), own_cpus());
  return meeting;
}

// Opening links is collective, so every rank needs a thread of its own while it does.
std::vector<Membership> meet_on_fake_nodes(const std::vector<Peer>& peers,
                                           const WorldOptions& options) {
  const auto ranks = static_cast<int>(peers.size());
  auto lines = make_thread_hub(ranks, options.rendezvous_deadline);
  std::vector<std::future<Membership>> futures;
  for (int rank = 0; rank < ranks; ++rank) {
    auto meet = [&, rank, line = std::move(lines[static_cast<std::size_t>(rank)])]() mutable {
      return meet_nodes(
          {.rank = rank, .size = ranks}, options, std::move(line),
          [&](const std::vector<int>& members) { return meet_threads(peers, members); });
    };
    futures.push_back(std::async(std::launch::async, std::move(meet)));
  }
  std::vector<Membership> memberships;
  std::exception_ptr failure;
  for (auto& future : futures) {
    try {
      memberships.push_back(future.get());
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
  return memberships;
}

Membership meet_over_store(const Placement& placement, const WorldOptions& options) {
  StoreMeeting store =
      meet_at_store(placement, options.fabric.interface, options.rendezvous_deadline);
  return meet_nodes({.rank = placement.rank, .size = placement.size, .interface = store.interface},
                    options, std::move(store.channel), [&](const std::vector<int>& members) {
                      return meet(placement, members, options);
                    });
}

// What the program leaves open, the launcher may have settled.
WorldOptions with_defaults(WorldOptions options, const Placement& placement) {
  FabricOptions& fabric = options.fabric;
  if (fabric.name == "auto" && !placement.fabric.empty()) fabric.name = placement.fabric;
  if (fabric.interface.empty()) fabric.interface = placement.interface;
  if (fabric.fake_nodes == 0) fabric.fake_nodes = placement.fake_nodes;
  if (fabric.injected_latency.count() == 0) {
    fabric.injected_latency =
        std::chrono::nanoseconds(static_cast<std::int64_t>(placement.latency_us * 1e3));
  }
  if (fabric.injected_bytes_per_second <= 0) {
    fabric.injected_bytes_per_second = placement.bandwidth_gbs * 1e9;
  }
  return options;
}

}  // namespace

std::shared_ptr<WorldCore> attach(const WorldOptions& wanted) {
  const auto placement = read_environment();
  if (!placement) return make_threads(1, wanted).front();
  const WorldOptions options = with_defaults(wanted, *placement);
  if (placement->coordinator) {
    return std::make_shared<WorldCore>(meet_over_store(*placement, options), options);
  }
  if (options.fabric.fake_nodes > 1 && placement->size > 1) {
    throw Error(Errc::rendezvous_failed,
                "fake nodes meet over a store, but RONDO_COORDINATOR is local:...; start the ranks "
                "by `rondo run --fake-nodes K`");
  }
  Meeting meeting = meet(*placement, all_ranks(placement->size), options);
  return std::make_shared<WorldCore>(on_one_node(placement->rank, std::move(meeting), options),
                                     options);
}

std::vector<std::shared_ptr<WorldCore>> make_threads(int ranks, const WorldOptions& options) {
  if (ranks < 1) throw std::invalid_argument("rondo::transport: a World has at least one rank");
  const std::vector<Peer> peers = make_shared_peers(ranks);
  std::vector<std::shared_ptr<WorldCore>> worlds;
  if (options.fabric.fake_nodes > 1 && ranks > 1) {
    for (Membership& membership : meet_on_fake_nodes(peers, options)) {
      worlds.push_back(std::make_shared<WorldCore>(std::move(membership), options));
    }
    return worlds;
  }
  for (int r = 0; r < ranks; ++r) {
    Meeting meeting = meet_threads(peers, all_ranks(ranks));
    worlds.push_back(
        std::make_shared<WorldCore>(on_one_node(r, std::move(meeting), options), options));
  }
  return worlds;
}

}  // namespace rondo::transport::rendezvous

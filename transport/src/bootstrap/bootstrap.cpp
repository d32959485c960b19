// How a World begins: as a process of a job, or as one of several threads.
//
// A process reads from its environment which job it belongs to, or asks its launcher. If all ranks
// are on this host ("local:"), they connect over local sockets alone. Otherwise ("tcp:") they join
// the store of rank 0 first, and exchange address cards there. Threads share their mappings; with
// fake nodes they join a store, too.

#include "bootstrap/bootstrap.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <exception>
#include <future>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <utility>

#include <rondo/transport/blocked_signals.hpp>
#include <rondo/transport/error.hpp>

#include "base/forks.hpp"
#include "bootstrap/auth.hpp"
#include "bootstrap/fabric.hpp"
#include "bootstrap/interfaces.hpp"
#include "bootstrap/launchers.hpp"
#include "bootstrap/node_connector.hpp"
#include "bootstrap/sockets.hpp"
#include "bootstrap/store.hpp"
#include "bootstrap/wire.hpp"
#include "world/world_core.hpp"

namespace rondo::transport::bootstrap {
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
    peers.push_back({.memory = shm::RankMemory::create(reserve, random_number()),
                     .process = nullptr,
                     .recorder = std::make_shared<recorder::Memory>(recorder::Memory::create()),
                     .info = {.pid = ::getpid(), .host = host_name()}});
  }
  return peers;
}

// As connect_node() for threads.
NodePeers share_peers(const std::vector<Peer>& peers, const std::vector<int>& members) {
  NodePeers node;
  node.peers.resize(peers.size());
  for (const int rank : members) {
    node.peers[static_cast<std::size_t>(rank)] = peers[static_cast<std::size_t>(rank)];
  }
  node.cpus.assign(peers.size(), own_cpus());
  return node;
}

// The listener that the launcher made, so that the port was known before rank 0 ran.
shm::Descriptor inherit_listener(int number) {
  int listening = 0;
  socklen_t length = sizeof listening;
  if (::getsockopt(number, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) != 0 || listening == 0) {
    throw Error(Errc::bootstrap_failed, "bootstrap: RONDO_LISTENER=" + std::to_string(number) +
                                            " is no listening socket; unset it, and rank 0 "
                                            "makes its own");
  }
  // A later World of this process may listen, too, so the inherited one stays.
  shm::Descriptor own(::fcntl(number, F_DUPFD_CLOEXEC, 0));
  if (!own.valid()) {
    throw Error(Errc::bootstrap_failed, "bootstrap: rank 0 has run out of descriptors");
  }
  return own;
}

std::unique_ptr<StoreClient> serve_store(const Credentials& credentials, const LaunchInfo& launch) {
  // One for each rank, and what unverified connections and the World itself take.
  allow_descriptors(static_cast<std::size_t>(launch.size) + 256, "the store of rank 0");
  // Processes that rank 0 of an earlier start had forked end some seconds after it.
  constexpr auto busy_port_limit = std::chrono::seconds(15);
  const auto until = launch.derived_port ? Clock::now() + busy_port_limit : Clock::time_point();
  shm::Descriptor listener = launch.listener >= 0 ? inherit_listener(launch.listener)
                                                  : listen_at(*launch.coordinator, until);
  if (credentials.secret.empty() && !own_address(listener.get()).loopback()) {
    throw Error(Errc::bootstrap_failed,
                "bootstrap: rank 0 on host " + credentials.self.host +
                    " has no secret, and does not listen to other hosts at " +
                    to_string(*launch.coordinator) +
                    " without one; set RONDO_SECRET, or make ~/.rondo/secret on all hosts");
  }
  return StoreClient::serve(credentials, std::move(listener),
                            launch.listener >= 0 ? Listener::inherited : Listener::own);
}

// `connect(members, channel)` maps the memory of the ranks of this node.
template <typename Connect>
Membership join_over_store(const LaunchInfo& launch, const WorldOptions& options, Connect connect) {
  JoinedStore store = join_store(launch, options.fabric.interface, options.bootstrap_deadline);
  const SideChannel* channel = store.channel.get();
  return join_nodes({.rank = launch.rank, .size = launch.size, .interface = store.interface},
                    options, std::move(store.channel),
                    [&](const std::vector<int>& members) { return connect(members, *channel); });
}

Membership join_nodes_of_job(LaunchInfo launch, const WorldOptions& options) {
  launch.fake_nodes = options.fabric.fake_nodes;
  return join_over_store(
      launch, options, [&](const std::vector<int>& members, const SideChannel& channel) {
        return connect_node(launch, members, options, [&channel] { return channel.failure(); });
      });
}

// Joining is collective, so every rank needs a thread of its own while it does. The store is on
// loopback, as that of `rondo run --fake-nodes`.
std::vector<Membership> join_fake_nodes(const std::vector<Peer>& peers,
                                        const WorldOptions& options) {
  const auto ranks = static_cast<int>(peers.size());
  const shm::Descriptor listener = listen_at({.host = "127.0.0.1", .port = 0});
  LaunchInfo launch{.job = hexadecimal(random_bytes(16)), .size = ranks};
  launch.coordinator = Endpoint{.host = "127.0.0.1", .port = own_address(listener.get()).port()};
  launch.listener = listener.get();
  launch.secret = hexadecimal(random_bytes(32));
  launch.fake_nodes = options.fabric.fake_nodes;
  std::vector<std::future<Membership>> futures;
  // The program's handlers run on threads of its own.
  std::optional<BlockedSignals> blocked(std::in_place);
  for (int rank = 0; rank < ranks; ++rank) {
    auto join = [&, rank] {
      LaunchInfo own = launch;
      own.rank = rank;
      return join_over_store(own, options, [&](const std::vector<int>& members, const auto&) {
        return share_peers(peers, members);
      });
    };
    futures.push_back(std::async(std::launch::async, std::move(join)));
  }
  blocked.reset();
  std::vector<Membership> memberships;
  // All threads are waited for, whichever of them fails.
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

// The launcher may have set options that the program leaves open.
WorldOptions with_defaults(WorldOptions options, const LaunchInfo& launch) {
  FabricOptions& fabric = options.fabric;
  if (fabric.name == "auto" && !launch.fabric.empty()) fabric.name = launch.fabric;
  if (fabric.interface.empty()) fabric.interface = launch.interface;
  if (fabric.fake_nodes == 0) fabric.fake_nodes = launch.fake_nodes;
  if (fabric.injected_latency.count() == 0) {
    fabric.injected_latency =
        std::chrono::nanoseconds(static_cast<std::int64_t>(launch.latency_us * 1e3));
  }
  if (fabric.injected_bytes_per_second <= 0) {
    fabric.injected_bytes_per_second = launch.bandwidth_gbs * 1e9;
  }
  return options;
}

// Rondo's own variables come first; without any launcher there is no job.
std::optional<LaunchInfo> find_launch(const WorldOptions& options) {
  if (auto launch = read_environment()) return launch;
  const auto launcher = find_launcher();
  if (!launcher) return std::nullopt;
  return join_launcher(*launcher, options.fabric.fake_nodes > 1, options.bootstrap_deadline);
}

// The launcher's, or else the user's; empty when there is none.
std::string secret_of(const LaunchInfo& launch) {
  return launch.secret.empty() ? read_secret().value_or("") : launch.secret;
}

std::shared_ptr<WorldCore> join(const LaunchInfo& launch, const WorldOptions& wanted) {
  const WorldOptions options = with_defaults(wanted, launch);
  if (launch.coordinator) {
    return make_in_this_process<WorldCore>(join_nodes_of_job(launch, options), options);
  }
  if (options.fabric.fake_nodes > 1 && launch.size > 1) {
    throw Error(Errc::bootstrap_failed,
                "fake nodes need a store, but RONDO_COORDINATOR is local:...; start the ranks by "
                "`rondo run --fake-nodes K`");
  }
  NodePeers node = connect_node(launch, all_ranks(launch.size), options);
  return make_in_this_process<WorldCore>(join_one_node(launch.rank, std::move(node), options),
                                         options);
}

}  // namespace

std::shared_ptr<WorldCore> attach(const WorldOptions& wanted) {
  const auto launch = find_launch(wanted);
  if (!launch) return make_threads(1, wanted).front();
  claim_rank(*launch, launch->coordinator ? secret_of(*launch) : std::string());
  return join(*launch, wanted);
}

std::shared_ptr<WorldCore> create(int rank, int size, const Allgather& allgather,
                                  const WorldOptions& wanted) {
  if (size < 1 || rank < 0 || rank >= size) {
    throw std::invalid_argument("rondo::transport: rank " + std::to_string(rank) +
                                " is not one of " + std::to_string(size));
  }
  const HostedJob job = join_host_program(rank, size, allgather, wanted.fabric);
  return join(job.launch, wanted);
}

std::vector<std::shared_ptr<WorldCore>> make_threads(int ranks, const WorldOptions& options) {
  if (ranks < 1) throw std::invalid_argument("rondo::transport: a World has at least one rank");
  const std::vector<Peer> peers = make_shared_peers(ranks);
  std::vector<std::shared_ptr<WorldCore>> worlds;
  if (options.fabric.fake_nodes > 1 && ranks > 1) {
    for (Membership& membership : join_fake_nodes(peers, options)) {
      worlds.push_back(make_in_this_process<WorldCore>(std::move(membership), options));
    }
    return worlds;
  }
  for (int r = 0; r < ranks; ++r) {
    NodePeers node = share_peers(peers, all_ranks(ranks));
    worlds.push_back(
        make_in_this_process<WorldCore>(join_one_node(r, std::move(node), options), options));
  }
  return worlds;
}

JoinedStore join_store(const LaunchInfo& launch, std::string_view interfaces,
                       std::chrono::milliseconds deadline) {
  const std::vector<Interface> all = list_interfaces();
  // A typing error is reported before any rank waits for another.
  if (!interfaces.empty()) (void)select_interfaces(all, interfaces);
  const Credentials credentials{
      .self = own_identity(launch), .secret = secret_of(launch), .bootstrap_deadline = deadline};
  std::unique_ptr<StoreClient> channel = launch.rank == 0
                                             ? serve_store(credentials, launch)
                                             : StoreClient::join(credentials, *launch.coordinator);
  // Once all have come, rank 0 knows by which address they reached it.
  channel->gather_by_node(node_key(launch.rank, launch.size, launch.fake_nodes));
  const std::string reached = channel->local_address();
  std::string interface =
      reached.empty() ? std::string("lo") : choose_interface(all, interfaces, reached);
  return {.channel = std::move(channel), .interface = std::move(interface)};
}

}  // namespace rondo::transport::bootstrap

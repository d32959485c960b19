#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <rondo/transport/world.hpp>

#include "bootstrap/auth.hpp"
#include "bootstrap/environment.hpp"
#include "bootstrap/sockets.hpp"
#include "world/world_core.hpp"

// How the ranks of one node find each other and map each other's memory.

namespace rondo::transport::bootstrap {

/// The identity of this rank.
[[nodiscard]] RankIdentity own_identity(const LaunchInfo& launch);

/// From now on until it ends this process is the rank of the job, also of the job's next Worlds.
/// Throws Error(bootstrap_failed) when another process of this host is, such as the one that has
/// started this one and has left it the variables of the job. One with another `secret` is a
/// stranger, whom the store refuses.
void claim_rank(const LaunchInfo& launch, const std::string& secret);

/// The ranks of a node, as one of them sees them.
struct NodePeers {
  std::vector<Peer> peers = {};    ///< of all ranks of the World; empty for those of other nodes
  std::vector<CpuMask> cpus = {};  ///< of the ranks of this node
};

/// Connects `members`, ranks of a job that are all on this node and this one among them, and maps
/// their memory.
///
/// Each rank listens on a socket named by job and rank, sends its NodeCard to all lower ranks,
/// answers all higher ones, and reads the lower ones' answers: no rank waits in a circle. A lower
/// rank that hangs up instead of answering is still in the bootstrap of an earlier World, so it is
/// sent the card again. Anything but a card is dropped. Throws Error(bootstrap_failed) that names
/// who did not come; with the text of `failure` as soon as that tells one, such as of a rank that
/// has ended.
[[nodiscard]] NodePeers connect_node(
    const LaunchInfo& launch, const std::vector<int>& members, const WorldOptions& options,
    const std::function<std::string()>& failure = [] { return std::string(); });

// Abstract UNIX sockets, one per rank: nothing in the file system to leak, and, other than a path,
// not reachable from another network namespace. Messages keep their boundaries (SOCK_SEQPACKET).
//
// Every user of the host can list the names, and take one that is free. So a name is an HMAC under
// the job's id: one name does not tell another. The kernel is asked for the user who has a name
// before anything is sent to it. A rank has several names, and those that other users have taken
// are skipped. None of the sockets blocks.

[[nodiscard]] shm::Descriptor listen_as(const std::string& job, int rank,
                                        int type = SOCK_SEQPACKET);

/// Connects to `rank`, waiting until it listens. Invalid when it did not until `deadline`, or
/// Error(bootstrap_failed) if another user has taken a name of it. Invalid, too, as soon as
/// `given_up`.
[[nodiscard]] shm::Descriptor connect_to(
    const std::string& job, int rank, Clock::time_point deadline, int type = SOCK_SEQPACKET,
    const std::function<bool()>& given_up = [] { return false; });

/// The next connection; invalid when there was none until `deadline`.
[[nodiscard]] shm::Descriptor accept_from(const shm::Descriptor& listener,
                                          Clock::time_point deadline);

/// The facts that two ranks of a node tell each other, beside four descriptors.
struct NodeCard {
  RankIdentity self = {};
  int pid = 0;
  Waiting waiting = {};           ///< must be equal on all ranks
  std::uint64_t nonce = 0;        ///< of the memory
  std::uint64_t small_bytes = 0;  ///< must be equal on all ranks: it decides the protocol
  CpuMask cpus = {};              ///< where the sender may run

  static auto fields(auto& card) {
    return std::tie(card.self, card.pid, card.waiting, card.nonce, card.small_bytes, card.cpus);
  }
};

/// The sender's memory and itself, which a NodeCard hands over.
struct NodeDescriptors {
  int control = -1;   ///< memfd
  int arena = -1;     ///< memfd
  int process = -1;   ///< pidfd
  int recorder = -1;  ///< memfd
};

struct ReceivedCard {
  NodeCard card = {};
  shm::Descriptor control = {};
  shm::Descriptor arena = {};
  shm::Descriptor process = {};
  shm::Descriptor recorder = {};
};

/// Sends `card` with the descriptors, which stay the caller's. False if the peer is gone, or
/// belongs to another user.
[[nodiscard]] bool send_card(int socket, const NodeCard& card, const NodeDescriptors& descriptors);

/// Receives one before `until`; nothing when the peer sent something else or nothing, or belongs
/// to another user.
[[nodiscard]] std::optional<ReceivedCard> receive_card(int socket, Clock::time_point until);

}  // namespace rondo::transport::bootstrap

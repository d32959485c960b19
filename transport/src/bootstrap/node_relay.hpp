#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bootstrap/sockets.hpp"
#include "bootstrap/wire.hpp"

namespace rondo::transport::bootstrap {

/// Where the leader of the ranks of `roster` listens, and how another rank of the node gets there.
///
/// The name contains the token of the World, which its ranks alone know, so that a rank cannot get
/// to the leader of another World of the job. Throws Error(bootstrap_failed).
[[nodiscard]] shm::Descriptor listen_as_leader(const std::string& job, const Roster& roster);

/// This rank's connection to its leader, whom it has told its number. Gives up when `given_up` says
/// so, which is asked again and again; then the result is invalid.
[[nodiscard]] shm::Descriptor connect_to_leader(const std::string& job, const Roster& roster,
                                                std::uint32_t rank, Clock::time_point deadline,
                                                const std::function<bool()>& given_up);

/// The work of a node's leader for its ranks: it gathers their parts of an allgather for the store,
/// and passes on what the store answers.
///
/// It waits for nothing and handles no failure: each rank has a connection of its own to the store,
/// and learns there that another is lost. Parts go to the store when all of the node have come;
/// those that came first wait 20 ms for the others, so that the store knows who is missing.
///
/// Belongs to the service thread.
class NodeRelay {
 public:
  NodeRelay(shm::Descriptor listener, const Roster& roster);

  /// Appends what it waits for.
  void list(std::vector<pollfd>& entries) const;
  [[nodiscard]] Clock::time_point due() const noexcept { return due_; }
  /// `entries` are those that list() appended, in order.
  void attend(std::span<const pollfd> entries, Clock::time_point now);

  /// The leader's own part.
  void add(Blob blob, Clock::time_point now) { add(leader_, std::move(blob), now); }

  /// The parts that are to be sent to the store now; nothing when there are none (any more).
  [[nodiscard]] std::optional<NodeParts> take_parts(Clock::time_point now);

  /// To all ranks of the node that are still connected.
  void pass_on(const Frame& answer);

  /// Ends the connections once everything has been sent.
  void finish();
  [[nodiscard]] bool finished() const;

 private:
  struct Member {
    Connection connection;
    std::optional<std::uint32_t> rank = {};
  };

  void add(std::uint32_t rank, Blob blob, Clock::time_point now);
  void accept_some();
  void serve(Member& member, Clock::time_point now);
  [[nodiscard]] bool identify(Member& member, const Frame& frame) const;

  shm::Descriptor listener_;  ///< invalid when all have come
  Roster roster_;
  std::uint32_t leader_;
  std::vector<std::unique_ptr<Member>> members_;
  NodeParts parts_;  ///< that are not on their way yet
  std::size_t unsent_bytes_ = 0;
  std::size_t arrived_ = 0;  ///< in this round
  Clock::time_point due_ = Clock::time_point::max();
};

}  // namespace rondo::transport::bootstrap

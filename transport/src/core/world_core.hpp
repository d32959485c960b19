#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/transport/counters.hpp>
#include <rondo/transport/error.hpp>
#include <rondo/transport/world.hpp>

#include "core/channel.hpp"
#include "core/membership.hpp"
#include "core/peer_status.hpp"
#include "recorder/recorder.hpp"

namespace rondo::transport {

class CommunicatorCore;
struct OperationRecord;

/// One rank's World: its peers, its arena, its communicators, and how it waits.
class WorldCore : public std::enable_shared_from_this<WorldCore> {
 public:
  WorldCore(Membership membership, WorldOptions options);
  WorldCore(const WorldCore&) = delete;
  WorldCore& operator=(const WorldCore&) = delete;
  /// Sends what is on its way and marks this rank as left.
  ~WorldCore();

  /// The communicator of all ranks; once, right after construction.
  [[nodiscard]] std::shared_ptr<CommunicatorCore> make_world_communicator();

  [[nodiscard]] int rank() const noexcept { return my_.rank; }
  [[nodiscard]] const std::vector<Peer>& peers() const noexcept { return my_.peers; }
  [[nodiscard]] const std::vector<RankInfo>& infos() const noexcept { return infos_; }
  [[nodiscard]] SharedArena& arena() noexcept { return arena_; }
  [[nodiscard]] ArenaCore& arena_core() const noexcept { return *arena_.core_; }
  [[nodiscard]] const WorldOptions& options() const noexcept { return options_; }
  [[nodiscard]] Counters& counters() noexcept { return counters_; }
  [[nodiscard]] bool oversubscribed() const noexcept { return my_.oversubscribed; }
  [[nodiscard]] int nodes() const noexcept { return nodes_; }
  [[nodiscard]] const std::string& route() const noexcept { return my_.route; }
  [[nodiscard]] bool may_sleep() const noexcept { return options_.waiting != Waiting::spin; }
  [[nodiscard]] shm::RankHeader& header() const noexcept { return peer(rank()).memory->header(); }
  [[nodiscard]] const Peer& peer(int rank) const noexcept {
    return my_.peers[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] bool same_node(int rank) const noexcept {
    return peer(rank).info.node == peer(my_.rank).info.node;
  }

  /// Are other ranks on this node, too?
  [[nodiscard]] bool shares_its_node() const noexcept { return shares_its_node_; }

  /// What carries messages to `rank`.
  [[nodiscard]] Link* link_to(int rank) const noexcept {
    return same_node(rank) ? my_.local.get() : my_.fabric.get();
  }
  [[nodiscard]] Link* fabric() const noexcept { return my_.fabric.get(); }

  void add(CommunicatorCore& communicator);
  void remove(CommunicatorCore& communicator) noexcept;

  /// One pass over all communicators. True if any operation moved.
  bool progress();

  /// A control block for a new communicator: a retired one that nobody uses any more, or a new
  /// one. `last` is the last sequence that it ever held.
  struct Offer {
    std::uint64_t block;
    std::uint64_t last;
  };
  [[nodiscard]] Offer offer_block();
  /// Takes back an offer that was not needed.
  void withdraw(const Offer& offer);
  /// Keeps the block of a destroyed communicator until every member has consumed its last
  /// operation.
  void retire(const CommunicatorCore& communicator);

  void abort(std::string_view reason) noexcept;
  /// The first abort of any rank, if there was one.
  [[nodiscard]] std::optional<Error> aborted() const;
  /// Has the rank's process ended, or its World?
  [[nodiscard]] bool gone(int rank) const noexcept;
  /// Has its World ended in order, so that all it sent is on its way?
  [[nodiscard]] bool left(int rank) const noexcept;
  /// A communicator that spans nodes is no more on this rank; its last collective here.
  void note_last_part(const LastCollective& part);
  /// See PeerStatus.
  [[nodiscard]] std::optional<std::uint64_t> last_part(int rank, std::uint32_t context,
                                                       std::uint64_t members) const {
    return news_.last_part(rank, context, members);
  }
  /// Among ranks that have gone, the lesser explains the others.
  [[nodiscard]] std::uint32_t fate(int rank) const noexcept { return news_.fate(rank); }

  [[nodiscard]] recorder::Recorder& recorder() noexcept { return recorder_; }
  /// Puts `error` into the flight record if it is the first; dumps as WorldOptions::dump_folder
  /// says.
  void note_failure(const Error& error) noexcept;
  void dump_flight_record(const std::filesystem::path& path) const;
  /// dump_folder() may be asked by any thread.
  void set_dump_folder(const std::filesystem::path& folder);
  [[nodiscard]] std::filesystem::path dump_folder() const;

  /// Tells the ranks of other nodes that this one found a mismatch on a communicator.
  void tell_divergence(std::uint32_t context, std::string_view text) noexcept;

  /// What other ranks told of, perhaps before this one had made the communicator that it is about.
  [[nodiscard]] const std::vector<rendezvous::News>& divergences() const noexcept {
    return divergences_;
  }

  /// The least context that no communicator of this rank has used.
  [[nodiscard]] std::uint32_t next_context() const noexcept { return next_context_; }
  void use_context(std::uint32_t context) noexcept { next_context_ = context + 1; }

  /// A number for the messages of one more communicator. Throws Error(out_of_memory) when all are
  /// taken.
  [[nodiscard]] std::uint16_t take_port();
  void release_port(std::uint16_t port) noexcept { ports_.release(port); }

 private:
  struct Retired {
    std::uint64_t block;
    std::uint64_t last;
    std::vector<const shm::ControlBlock*> members;
  };

  [[nodiscard]] Error abort_error(int rank, std::string_view reason) const;
  void dump_own(std::string_view reason) noexcept;
  void dump_for_others(const Error& error) noexcept;
  void hear_divergences();
  void ring_all() noexcept;

  Membership my_;
  std::vector<RankInfo> infos_;
  int nodes_ = 1;
  bool shares_its_node_ = false;
  WorldOptions options_;
  SharedArena arena_;
  recorder::Recorder recorder_;
  mutable std::mutex dump_folder_mutex_;  // of options_.dump_folder: abort() reads it
  std::atomic<bool> dumped_{false};
  std::vector<bool> dumped_for_;  // per rank
  Counters counters_;
  std::vector<CommunicatorCore*> communicators_;
  std::vector<Retired> retired_;
  PeerStatus news_;
  std::deque<LastCollective> last_parts_;  // of communicators that are no more, the latest first
  std::vector<rendezvous::News> divergences_;
  std::uint32_t next_context_ = 0;
  Ports ports_;
  std::atomic<bool> abort_begun_{false};
};

}  // namespace rondo::transport

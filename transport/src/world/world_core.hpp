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

#include <rondo/transport/error.hpp>
#include <rondo/transport/world.hpp>

#include "base/world_lock.hpp"
#include "memory/arena.hpp"
#include "memory/memory.hpp"
#include "message/channel.hpp"
#include "message/link.hpp"
#include "recorder/recorder.hpp"
#include "verdict/peer_status.hpp"
#include "verdict/side_channel.hpp"
#include "world/event_descriptor.hpp"
#include "world/stalls.hpp"

namespace rondo::transport {

/// One rank of a World as all others see it. Ranks that are threads of one process share these.
struct Peer {
  std::shared_ptr<shm::RankMemory> memory = {};     ///< none for ranks out of reach
  std::shared_ptr<shm::Descriptor> process = {};    ///< a pidfd; none for threads and far ranks
  std::shared_ptr<recorder::Memory> recorder = {};  ///< what it records; none out of reach
  RankInfo info = {};
};

/// The result of the bootstrap for one rank.
struct Membership {
  int rank = 0;
  std::vector<Peer> peers = {};
  bool oversubscribed = false;
  /// Messages to ranks of this node.
  std::unique_ptr<Link> local = {};
  /// Messages to ranks of other nodes; none when there is one node.
  std::unique_ptr<Link> fabric = {};
  /// Tells the status of ranks on other nodes; none when there is one node.
  std::unique_ptr<SideChannel> side_channel = {};
  std::string route = "none";
};

/// A communicator, as its World drives it.
class ProgressSource {
 public:
  /// Advances its operations by at most one step of work. True if any moved.
  virtual bool progress() = 0;
  /// A rank of another node found that the ranks of a communicator posted different operations.
  virtual void handle_divergence(const StatusMessage& status) = 0;

 protected:
  ~ProgressSource() = default;
};

/// A control block that a rank offers for a new communicator, and the last sequence it ever held.
struct BlockOffer {
  std::uint64_t block = 0;
  std::uint64_t last = 0;
};

/// One rank's World: its peers, its arena, its communicators, and how it waits.
///
/// world_core.cpp has its life and progress, flight_records.cpp when it writes flight records.
class WorldCore : public std::enable_shared_from_this<WorldCore> {
 public:
  WorldCore(Membership membership, WorldOptions options);
  WorldCore(const WorldCore&) = delete;
  WorldCore& operator=(const WorldCore&) = delete;
  /// Sends what is on its way and marks this rank as left.
  ~WorldCore();

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
  /// The detail of an Error about `rank`, or about no rank for -1.
  [[nodiscard]] ErrorDetail detail_of(int rank, std::string operation = {}) const;

  /// Are other ranks on this node, too?
  [[nodiscard]] bool shares_its_node() const noexcept { return shares_its_node_; }

  /// The link that carries messages to `rank`.
  [[nodiscard]] Link* link_to(int rank) const noexcept {
    return same_node(rank) ? my_.local.get() : my_.fabric.get();
  }
  [[nodiscard]] Link* fabric() const noexcept { return my_.fabric.get(); }

  void add(ProgressSource& communicator);
  void remove(ProgressSource& communicator) noexcept;

  /// One pass over all communicators. True if any operation moved. Disarms event_descriptor().
  bool progress();
  /// How many passes have moved something, whichever thread made them.
  [[nodiscard]] std::uint64_t moves() const noexcept { return moves_; }

  /// Held by every public call.
  [[nodiscard]] WorldLock& lock() noexcept { return lock_; }

  /// While it lives, peers and this rank's other threads ring the doorbell for what they publish
  /// and move. Begins with a full fence, for what is read after it.
  class Sleeper {
   public:
    explicit Sleeper(WorldCore& world) noexcept : world_(world) { world_.begin_sleep(); }
    Sleeper(const Sleeper&) = delete;
    Sleeper& operator=(const Sleeper&) = delete;
    ~Sleeper() { world_.end_sleep(); }

   private:
    WorldCore& world_;
  };
  void begin_sleep() noexcept;
  void end_sleep() noexcept;

  /// While it lives, this thread sleeps on the fabric's descriptor for all of this rank's threads.
  class FabricWatch {
   public:
    explicit FabricWatch(WorldCore& world) noexcept : world_(world) {
      world_.watches_fabric_ = true;
    }
    FabricWatch(const FabricWatch&) = delete;
    FabricWatch& operator=(const FabricWatch&) = delete;
    ~FabricWatch() { world_.end_fabric_watch(); }

    /// Becomes readable when another thread has moved something; -1 if there are no others.
    [[nodiscard]] int rings() const noexcept { return world_.rings_.get(); }

   private:
    WorldCore& world_;
  };
  [[nodiscard]] bool watches_fabric() const noexcept { return watches_fabric_; }

  /// Made by the first call; see World::event_descriptor().
  [[nodiscard]] int event_descriptor(std::chrono::nanoseconds check_interval);
  /// See World::arm().
  [[nodiscard]] bool arm();

  /// A control block for a new communicator: a retired one that is not used any more, or a new one.
  [[nodiscard]] BlockOffer offer_block();
  /// Takes back an offer that was not needed.
  void take_back(const BlockOffer& offer);
  /// Keeps the block of a destroyed communicator until all `members`, which are their blocks, have
  /// consumed its last operation.
  void retire(const BlockOffer& block, std::vector<const shm::ControlBlock*> members);

  void abort(std::string_view reason) noexcept;
  /// Has this rank called abort(), on whichever thread? Cheaper than aborted().
  [[nodiscard]] bool has_aborted_itself() const noexcept {
    // Acquire: pairs with the release in abort().
    return header().aborted.load(std::memory_order_acquire) != 0;
  }
  /// The first abort of any rank, if there was one.
  [[nodiscard]] std::optional<Error> aborted() const;
  /// Has the rank's process ended, or its World?
  [[nodiscard]] bool has_ended(int rank) const noexcept;
  /// Has its World ended in order, so that all it sent is on its way?
  [[nodiscard]] bool has_left(int rank) const noexcept;
  /// The rank that was first known to have ended, but not in order. It explains what others do
  /// later, unless this rank has survived its loss: with `unsurvived` such ranks do not count.
  [[nodiscard]] std::optional<int> first_lost(bool unsurvived = false) const noexcept;
  /// Is rank 0 gone, whose store tells what becomes of ranks of other nodes?
  [[nodiscard]] bool store_has_ended() const noexcept { return peer_status_.has_ended(0); }
  /// The news that ranks of other nodes have told. Ranks of this node are not in it.
  [[nodiscard]] const PeerStatus& peer_status() const noexcept { return peer_status_; }
  [[nodiscard]] PeerStatus& peer_status() noexcept { return peer_status_; }
  [[nodiscard]] Stalls& stalls() noexcept { return stalls_; }
  /// A communicator that spans nodes is no more on this rank; its last collective here.
  void note_last_collective(const LastCollective& last);

  [[nodiscard]] recorder::Recorder& recorder() noexcept { return recorder_; }
  /// Puts `error` into the flight record if it is the first; dumps as WorldOptions::dump_folder
  /// says.
  void note_failure(const Error& error) noexcept;
  void dump_flight_record(const std::filesystem::path& path) const;
  /// dump_folder() may be asked by any thread.
  void set_dump_folder(const std::string& folder);
  [[nodiscard]] std::filesystem::path dump_folder() const;

  /// The error of an operation for which there is no memory. To copy it needs none.
  [[nodiscard]] const Error& lacks_memory() const noexcept { return lacks_memory_; }

  /// Tells the ranks of other nodes, or the store, of this rank. False when there is one node.
  bool tell(StatusMessage::Kind kind, std::string text) noexcept;

  /// Tells the ranks of other nodes that this one found a mismatch on a communicator.
  void tell_divergence(std::uint32_t context, const Error& error) noexcept;
  /// Mismatches that other ranks have told of, some perhaps before this rank had made the
  /// communicator that they are about.
  [[nodiscard]] const std::vector<StatusMessage>& divergences() const noexcept {
    return divergences_;
  }

  /// While it lives, this rank makes a communicator. Throws std::logic_error if it does already:
  /// ranks could not tell which of two such calls belong together.
  class Split {
   public:
    explicit Split(WorldCore& world);
    Split(const Split&) = delete;
    Split& operator=(const Split&) = delete;
    ~Split() { world_.splits_ = false; }

   private:
    WorldCore& world_;
  };

  /// The least context that no communicator of this rank has used.
  [[nodiscard]] std::uint32_t next_context() const noexcept { return next_context_; }
  void use_context(std::uint32_t context) noexcept { next_context_ = context + 1; }

  /// A number for the messages of one more communicator. Throws Error(out_of_memory) when all are
  /// taken.
  [[nodiscard]] std::uint16_t take_port();
  void release_port(std::uint16_t port) noexcept { ports_.release(port); }

 private:
  struct Retired {
    BlockOffer offer;
    std::vector<const shm::ControlBlock*> members;
  };

  [[nodiscard]] Error abort_error(int rank, std::string_view reason) const;
  [[nodiscard]] std::uint64_t make_block();
  void dump_own(std::string_view reason);
  void dump_for_others(const Error& error);
  bool progress_of_communicators();
  void handle_divergences();
  void ring_all() noexcept;
  void ring_own_threads() noexcept;
  void end_fabric_watch() noexcept;

  WorldLock lock_;
  Membership my_;
  std::vector<RankInfo> infos_;
  int nodes_ = 1;
  bool shares_its_node_ = false;
  WorldOptions options_;
  SharedArena arena_;
  recorder::Recorder recorder_;
  const Error lacks_memory_;
  mutable std::mutex dump_folder_mutex_;  // of options_.dump_folder: abort() reads it
  std::atomic<bool> dumped_{false};
  std::vector<bool> dumped_for_;  // per rank
  Counters counters_;
  std::vector<ProgressSource*> communicators_;
  std::vector<Retired> retired_;
  PeerStatus peer_status_;
  Stalls stalls_{*this};
  std::deque<LastCollective> last_collectives_;  // of communicators that are no more, latest first
  std::vector<StatusMessage> divergences_;
  bool splits_ = false;
  std::uint32_t next_context_ = 0;
  Ports ports_;
  std::atomic<bool> abort_begun_{false};
  std::unique_ptr<EventDescriptor> event_descriptor_;
  std::uint64_t moves_ = 0;
  int sleepers_ = 0;             // threads, and event_descriptor() while it is armed
  bool watches_fabric_ = false;  // does a thread sleep on its descriptor?
  shm::Descriptor rings_;        // an eventfd for that thread; none if there are no others
};

/// "rank 3 (pid 4711 on node17)".
[[nodiscard]] std::string name_rank(const WorldCore& world, int rank);

}  // namespace rondo::transport

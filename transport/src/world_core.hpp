#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/transport/counters.hpp>
#include <rondo/transport/error.hpp>
#include <rondo/transport/world.hpp>

#include "shm/descriptor.hpp"
#include "shm/rank_memory.hpp"

namespace rondo::transport {

class CommunicatorCore;
struct OperationRecord;

/// One rank of a World as all others see it. Ranks that are threads of one process share these.
struct Peer {
  std::shared_ptr<shm::RankMemory> memory = {};
  std::shared_ptr<shm::Descriptor> process = {};  ///< a pidfd; none for threads of this process
  RankInfo info = {};
};

/// One rank's World: its peers, its arena, its communicators, and how it waits.
class WorldCore : public std::enable_shared_from_this<WorldCore> {
 public:
  WorldCore(int rank, std::vector<Peer> peers, bool oversubscribed, WorldOptions options);
  WorldCore(const WorldCore&) = delete;
  WorldCore& operator=(const WorldCore&) = delete;
  /// Marks this rank as left.
  ~WorldCore();

  /// The communicator of all ranks; once, right after construction.
  [[nodiscard]] std::shared_ptr<CommunicatorCore> make_world_communicator();

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] const std::vector<Peer>& peers() const noexcept { return peers_; }
  [[nodiscard]] const std::vector<RankInfo>& infos() const noexcept { return infos_; }
  [[nodiscard]] SharedArena& arena() noexcept { return arena_; }
  [[nodiscard]] const ArenaCore& arena_core() const noexcept { return *arena_.core_; }
  [[nodiscard]] const WorldOptions& options() const noexcept { return options_; }
  [[nodiscard]] Counters& counters() noexcept { return counters_; }
  [[nodiscard]] bool oversubscribed() const noexcept { return oversubscribed_; }
  [[nodiscard]] bool may_sleep() const noexcept { return options_.waiting != Waiting::spin; }
  [[nodiscard]] shm::RankHeader& header() const noexcept { return peer(rank_).memory->header(); }
  [[nodiscard]] const Peer& peer(int rank) const noexcept {
    return peers_[static_cast<std::size_t>(rank)];
  }

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
  /// Keeps the block of a destroyed communicator until every member has consumed its last
  /// operation.
  void retire(const CommunicatorCore& communicator);

  void abort(std::string_view reason) noexcept;
  /// The first abort of any rank, if there was one.
  [[nodiscard]] std::optional<Error> aborted() const;
  /// Has the rank's process ended, or its World?
  [[nodiscard]] bool gone(int rank) const noexcept;

 private:
  struct Retired {
    std::uint64_t block;
    std::uint64_t last;
    std::vector<const shm::ControlBlock*> members;
  };

  int rank_;
  std::vector<Peer> peers_;
  std::vector<RankInfo> infos_;
  bool oversubscribed_;
  WorldOptions options_;
  SharedArena arena_;
  Counters counters_;
  std::vector<CommunicatorCore*> communicators_;
  std::vector<Retired> retired_;
  std::atomic<bool> abort_begun_{false};
};

}  // namespace rondo::transport

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <rondo/transport/counters.hpp>

#include "collective/choice.hpp"
#include "shm/memory.hpp"

namespace rondo::transport {

class Channel;
class Team;
struct Hierarchy;

/// Ordinary memory for the operation that runs; grows on first use, so that later operations of
/// the same size allocate nothing.
class Scratch {
 public:
  /// Begins on a cache line.
  [[nodiscard]] std::span<std::byte> take(std::size_t bytes) {
    if (memory_.size() < bytes + line) memory_.resize(bytes + line);
    void* start = memory_.data();
    std::size_t room = memory_.size();
    return {static_cast<std::byte*>(std::align(line, bytes, start, room)), bytes};
  }

 private:
  static constexpr std::size_t line = 64;
  std::vector<std::byte> memory_ = {};
};

/// One rank of a communicator, as this process sees it.
struct Member {
  int world_rank = 0;
  std::uint16_t port = 0;  ///< for messages to it, see Ports
  shm::RankMemory* memory = nullptr;
  shm::ControlBlock* block = nullptr;
};

/// What an algorithm knows about the communicator that it runs on.
struct Group {
  int rank = 0;
  std::vector<Member> members = {};
  Team* team = nullptr;
  Counters* counters = nullptr;

  /// Messages to the other members; null while all that the communicator does is shared memory.
  const Channel* channel = nullptr;
  /// Null when all members are on one node.
  Hierarchy* levels = nullptr;
  Scratch scratch = {};
  /// Messages of collectives are at most so long, where an algorithm can choose; the same on all
  /// ranks. 256 KiB suit RDMA.
  std::size_t segment_bytes = std::size_t{512} << 10U;
  /// How an allreduce runs over links; the same on all ranks.
  AlgorithmTable allreduce_table = {};

  /// Rounds of staged operations that are over; the same on all ranks.
  std::uint64_t staged_rounds = 0;
  /// Set by whoever stores a flag that peers may sleep for.
  bool published = false;

  /// Scratch of size() addresses each, so that no operation allocates.
  std::vector<const std::byte*> sources = {};
  std::vector<std::byte*> destinations = {};

  [[nodiscard]] int size() const noexcept { return static_cast<int>(members.size()); }
  [[nodiscard]] std::size_t count() const noexcept { return members.size(); }
  [[nodiscard]] std::size_t index() const noexcept { return static_cast<std::size_t>(rank); }
  [[nodiscard]] shm::ControlBlock& mine() const noexcept { return *members[index()].block; }
};

}  // namespace rondo::transport

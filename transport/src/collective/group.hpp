#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <rondo/transport/counters.hpp>

#include "shm/rank_memory.hpp"

namespace rondo::transport {

class Channel;
class Team;
struct Levels;

/// Ordinary memory for the operation that runs; grows on first use, so that later operations of
/// the same size allocate nothing.
class Scratch {
 public:
  [[nodiscard]] std::span<std::byte> take(std::size_t bytes) {
    if (memory_.size() < bytes) memory_.resize(bytes);
    return std::span(memory_).first(bytes);
  }

 private:
  std::vector<std::byte> memory_ = {};
};

/// One rank of a communicator, as this process sees it.
struct Member {
  int world_rank = 0;
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
  Levels* levels = nullptr;
  Scratch scratch = {};

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

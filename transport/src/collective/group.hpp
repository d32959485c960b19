#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <rondo/transport/counters.hpp>

#include "shm/rank_memory.hpp"

namespace rondo::transport {

class Team;

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

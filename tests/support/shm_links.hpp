#pragma once

// Shared-memory links for tests: one for each rank, all in this process.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "memory/memory.hpp"
#include "message/link.hpp"

namespace rondo::test {

/// The memories of some ranks, and their links, all driven by one thread.
class ShmLinks {
 public:
  explicit ShmLinks(int ranks) {
    const auto reserve = transport::shm::Reserve::of(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      owners_.push_back(transport::shm::RankMemory::create(reserve, 1));
      memories_.push_back(owners_.back().get());
    }
    links_.resize(owners_.size());
  }

  [[nodiscard]] int size() const noexcept { return static_cast<int>(links_.size()); }
  [[nodiscard]] transport::shm::RankMemory& memory(int rank) const { return *memories_[at(rank)]; }

  /// The link of a rank, opened on first use.
  [[nodiscard]] transport::Link& link(int rank) {
    auto& link = links_[at(rank)];
    if (!link) link = transport::open_shm_link(rank, memories_, true);
    return *link;
  }
  void close(int rank) { links_[at(rank)].reset(); }

  /// `bytes` bytes of the rank's arena, which hold nothing else in these tests.
  [[nodiscard]] std::span<std::byte> arena(int rank, std::size_t bytes) const {
    memory(rank).arena().grow(bytes);
    return {memory(rank).arena().base(), bytes};
  }

  /// Progress of all links, by this thread, until nothing moves.
  void settle() {
    for (bool moved = true; moved;) {
      moved = false;
      for (const auto& link : links_) moved = (link && link->progress()) || moved;
    }
  }

 private:
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

  std::vector<std::shared_ptr<transport::shm::RankMemory>> owners_;
  std::vector<transport::shm::RankMemory*> memories_;
  std::vector<std::unique_ptr<transport::Link>> links_;
};

/// Fills memory with bytes that tell `seed` and their place.
inline void fill(std::span<std::byte> data, std::uint32_t seed) {
  for (std::size_t i = 0; i < data.size(); ++i) {
    const auto value = (static_cast<std::uint32_t>(i) + seed * 977U) * 2654435761U;
    data[i] = static_cast<std::byte>(value >> 24U);
  }
}

inline std::vector<std::byte> filled(std::size_t bytes, std::uint32_t seed) {
  std::vector<std::byte> data(bytes);
  fill(data, seed);
  return data;
}

/// Are these the bytes of fill()? Says where not.
inline testing::AssertionResult is_filled(std::span<const std::byte> data, std::uint32_t seed) {
  const auto expected = filled(data.size(), seed);
  if (data.empty() || std::memcmp(data.data(), expected.data(), data.size()) == 0) {
    return testing::AssertionSuccess();
  }
  std::size_t at = 0;
  while (data[at] == expected[at]) ++at;
  return testing::AssertionFailure() << "byte " << at << " of " << data.size() << " differs";
}

}  // namespace rondo::test

#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "rendezvous/side_channel.hpp"

namespace rondo::transport {

/// What the side channel has told of ranks on other nodes. Written by its thread, read by the
/// World's.
class NewsBoard {
 public:
  using News = rendezvous::News;

  explicit NewsBoard(std::size_t ranks) : fates_(ranks) {}

  void hear(const News& news);

  /// Has the rank left, or was it lost?
  [[nodiscard]] bool gone(int rank) const noexcept;
  /// Did it leave in order? Then all that it sent is on its way.
  [[nodiscard]] bool left(int rank) const noexcept;
  /// The position of the rank's going among all that went, from 1; 0 while it is there. The first
  /// to go explains the others.
  [[nodiscard]] std::uint32_t fate(int rank) const noexcept;

  /// The first abort that was heard of.
  [[nodiscard]] std::optional<News> aborted() const;

  /// The divergences that were heard of since the last call.
  [[nodiscard]] std::vector<News> take_diverged();

 private:
  // The position, times two, plus one for a rank that left in order.
  std::vector<std::atomic<std::uint32_t>> fates_;
  std::atomic<std::uint32_t> gone_{0};
  std::atomic<bool> has_aborted_{false};
  std::atomic<bool> has_diverged_{false};
  mutable std::mutex mutex_;  // of what follows
  std::optional<News> aborted_;
  std::vector<News> diverged_;
};

}  // namespace rondo::transport

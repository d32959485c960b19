#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "bootstrap/side_channel.hpp"

namespace rondo::transport {

/// The last collective of a communicator that a rank took part in.
struct LastCollective {
  std::uint32_t context = 0;
  std::uint64_t members = 0;  ///< a hash of the communicator's ranks: contexts may be used again
  std::uint64_t sequence = 0;

  static auto fields(auto& self) { return std::tie(self.context, self.members, self.sequence); }
};

/// What a rank that leaves tells of the communicators that it was in, the latest first. Beyond
/// `most_last_parts` nothing is told of a communicator.
[[nodiscard]] std::string encode(std::span<const LastCollective> parts);
[[nodiscard]] std::vector<LastCollective> decode_last_parts(std::string_view text);
inline constexpr std::size_t most_last_parts = 200;

/// What the side channel has told of ranks on other nodes. Written by its thread, read by the
/// World's.
class PeerStatus {
 public:
  using News = rendezvous::News;

  explicit PeerStatus(std::size_t ranks) : fates_(ranks), last_parts_(ranks) {}

  void hear(const News& news);

  /// Has the rank left, or was it lost?
  [[nodiscard]] bool gone(int rank) const noexcept;
  /// Did it leave in order? Then all that it sent is on its way.
  [[nodiscard]] bool left(int rank) const noexcept;
  /// The position of the rank's going among all that went, from 1; 0 while it is there. The first
  /// to go explains the others.
  [[nodiscard]] std::uint32_t fate(int rank) const noexcept;

  /// The last collective of a communicator that `rank` took part in before it left in order;
  /// nothing when it did not tell.
  [[nodiscard]] std::optional<std::uint64_t> last_part(int rank, std::uint32_t context,
                                                       std::uint64_t members) const;

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
  std::vector<std::vector<LastCollective>> last_parts_;  // per rank
};

}  // namespace rondo::transport

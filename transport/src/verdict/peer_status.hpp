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

#include "verdict/side_channel.hpp"

namespace rondo::transport {

/// The last collective of a communicator that a rank took part in.
struct LastCollective {
  std::uint32_t context = 0;
  std::uint64_t members = 0;  ///< a hash of the communicator's ranks: contexts may be used again
  std::uint64_t sequence = 0;

  static auto fields(auto& self) { return std::tie(self.context, self.members, self.sequence); }
};

/// A rank has waited to its deadline for one that does not take part.
struct GaveUp {
  int rank = -1;
  std::int32_t at_fault = -1;  ///< the World rank that it waited for, in the end
  std::string text = {};       ///< of its error

  static auto fields(auto& self) { return std::tie(self.at_fault, self.text); }
};

/// The text in which a rank that leaves tells these of the communicators that it was in, the latest
/// first; those beyond `max_last_collectives` are left out.
[[nodiscard]] std::string encode(std::span<const LastCollective> collectives);
[[nodiscard]] std::vector<LastCollective> decode_last_collectives(std::string_view text);
inline constexpr std::size_t max_last_collectives = 200;

/// The status of ranks on other nodes, as the side channel has told it. Written by its thread, read
/// by the World's.
class PeerStatus {
 public:
  explicit PeerStatus(std::size_t ranks) : departures_(ranks), last_collectives_(ranks) {}

  void update(const StatusMessage& status);

  /// Has the rank left, or was it lost?
  [[nodiscard]] bool has_ended(int rank) const noexcept;
  /// Did it leave in order? Then all that it sent is on its way.
  [[nodiscard]] bool has_left(int rank) const noexcept;
  /// The position of the rank among all that have ended, from 1; 0 while it runs. The first to end
  /// explains the others.
  [[nodiscard]] std::uint32_t departure(int rank) const noexcept;

  /// The last collective of a communicator that `rank` took part in before it left in order;
  /// nothing when it did not tell.
  [[nodiscard]] std::optional<std::uint64_t> last_collective(int rank, std::uint32_t context,
                                                             std::uint64_t members) const;

  /// The rank that the store has answered is at fault, since forget_fault(); see WaitGraph.
  [[nodiscard]] std::optional<int> fault() const noexcept;
  void forget_fault() noexcept { at_fault_.store(-1, std::memory_order_relaxed); }

  /// The first rank that has told that it gave up.
  [[nodiscard]] std::optional<GaveUp> gave_up() const;

  /// The first abort that was told.
  [[nodiscard]] std::optional<StatusMessage> aborted() const;

  /// The divergences that were told since the last call.
  [[nodiscard]] std::vector<StatusMessage> take_diverged();

 private:
  [[nodiscard]] bool has(int rank) const noexcept {
    return rank >= 0 && static_cast<std::size_t>(rank) < departures_.size();
  }

  // departure() times two, plus one for a rank that left in order.
  std::vector<std::atomic<std::uint32_t>> departures_;
  std::atomic<std::uint32_t> departed_{0};
  std::atomic<int> at_fault_{-1};
  std::atomic<bool> has_aborted_{false};
  std::atomic<bool> has_diverged_{false};
  mutable std::mutex mutex_;  // of what follows
  std::optional<StatusMessage> aborted_;
  std::optional<GaveUp> gave_up_;
  std::vector<StatusMessage> diverged_;
  std::vector<std::vector<LastCollective>> last_collectives_;  // per rank
};

}  // namespace rondo::transport

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace rondo::transport {

/// News of one rank for all others after the bootstrap, told by itself or found out about it; or
/// what a rank that waits long tells the store alone, and the answer.
struct StatusMessage {
  enum class Kind : std::uint8_t {
    left = 1,  ///< its World ended in order; `text`: see LastCollective in peer_status.hpp
    lost,      ///< its process ended, or its host cannot be reached
    aborted,   ///< it called World::abort(); `text` is the reason
    diverged,  ///< it found a mismatch on communicator `context`; `text` shows both sides
    gave_up,   ///< its deadline has passed; `text`: see GaveUp in peer_status.hpp
    waits,     ///< to the store: for the ranks of `text` (encode_ranks()); for none: it goes on
    asks,      ///< to the store: who is at fault that the ranks of `text` do not come?
    at_fault,  ///< the store's answer
  };
  Kind kind = Kind::left;
  int rank = 0;  ///< whom it is about
  std::uint32_t context = 0;
  std::string text = {};

  static auto fields(auto& self) { return std::tie(self.kind, self.rank, self.context, self.text); }
};

/// The text of a StatusMessage is cut here.
inline constexpr std::size_t longest_text = 4096;

/// A rank's line to all ranks of its job, beside the links: before there are any, to exchange
/// addresses; afterwards, to learn who is lost.
///
/// It carries no data of collectives.
class SideChannel {
 public:
  SideChannel() = default;
  SideChannel(const SideChannel&) = delete;
  SideChannel& operator=(const SideChannel&) = delete;
  /// Tells the others that this rank has left, unless that was told already.
  virtual ~SideChannel() = default;

  /// Every rank's `mine`, in rank order. Collective; waits for all ranks to the bootstrap
  /// deadline, then throws Error(bootstrap_failed) that names who did not come. Any number of
  /// times, but only before watch().
  [[nodiscard]] virtual std::vector<std::string> allgather(std::string_view mine) = 0;

  /// From now on `handler` is called with every message about other ranks, on another thread, one
  /// at a time; also with those that came since the last allgather().
  virtual void watch(std::function<void(const StatusMessage&)> handler) = 0;

  /// Tells all other ranks, or the store. From any thread; neither waits nor throws.
  virtual void tell(const StatusMessage& message) noexcept = 0;

  /// Why the bootstrap has failed, as far as this rank knows; empty: it has not. A rank that leaves
  /// has ended its own, and is no reason. From any thread; does not wait.
  [[nodiscard]] virtual std::string failure() const { return {}; }
};

}  // namespace rondo::transport

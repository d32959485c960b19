#pragma once

#include <algorithm>
#include <chrono>

namespace rondo::transport {

/// How long messages that a link cancels may take to end by themselves, because the link can let go
/// of their memory only with the connection to their peer, which others need. The peer needs
/// processor time for its part: 100 ms were too short on few cores with other work, where
/// connections were closed although the peer was about to answer.
///
/// An operation that is given up cancels many messages, maybe to many peers that do not answer:
/// those that follow each other share one patience, and have a little each for what needs no peer.
class CancelPatience {
 public:
  using Clock = std::chrono::steady_clock;

  /// The deadline of a message that is cancelled now.
  [[nodiscard]] Clock::time_point deadline() noexcept {
    constexpr std::chrono::milliseconds patience{500};
    constexpr std::chrono::milliseconds little{1};
    constexpr std::chrono::seconds lull{1};
    const auto now = Clock::now();
    if (now > ends_ + lull) ends_ = now + patience;
    return std::max(ends_, now + little);
  }

 private:
  Clock::time_point ends_;  // of the cancels that follow each other closely
};

}  // namespace rondo::transport

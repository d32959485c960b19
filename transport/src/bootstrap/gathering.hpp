#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/messages.hpp"

namespace rondo::transport::rendezvous {

/// One allgather after the other, as the store sees them. Pure bookkeeping.
///
/// The deadline of a round runs from its first blob. Nobody is in two rounds: a rank begins the
/// next when it has all parts of the last.
class Gathering {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit Gathering(std::size_t ranks) : parts_(ranks), came_(ranks, false) {}

  /// False when it is of another round, or the rank's second.
  [[nodiscard]] bool take(std::size_t rank, Blob blob, Time deadline);

  /// All parts, once all came; then the next round begins.
  [[nodiscard]] std::optional<Blobs> complete();

  /// When the round under way must be complete; the end of time when none is.
  [[nodiscard]] Time deadline() const noexcept { return deadline_; }

  [[nodiscard]] const std::vector<bool>& came() const noexcept { return came_; }

  /// There will be no further rounds.
  void give_up() noexcept { deadline_ = Time::max(); }

 private:
  std::uint64_t round_ = 0;
  std::size_t arrived_ = 0;
  std::vector<std::string> parts_;
  std::vector<bool> came_;
  Time deadline_ = Time::max();
};

}  // namespace rondo::transport::rendezvous

// Keeps what the side channel tells of ranks on other nodes. The channel's thread writes, the
// World's thread reads: numbers that every check looks at are atomic, the rest is under a mutex.

#include "verdict/peer_status.hpp"

#include <algorithm>
#include <utility>

#include "base/best_effort.hpp"
#include "base/pack.hpp"

namespace rondo::transport {

std::string encode(std::span<const LastCollective> collectives) {
  const auto told = collectives.first(std::min(collectives.size(), max_last_collectives));
  return wire::pack(std::vector(told.begin(), told.end()));
}

// A text that is cut short tells nothing.
std::vector<LastCollective> decode_last_collectives(std::string_view text) {
  std::vector<LastCollective> collectives;
  if (!wire::unpack(text, collectives)) collectives.clear();
  return collectives;
}

// Called by the side channel's thread. A rank ends once: what is told later of it, for example that
// its connection broke after it had left, changes nothing.
void PeerStatus::update(const StatusMessage& status) {
  if (!has(status.rank)) return;
  switch (status.kind) {
    case StatusMessage::Kind::left:
    case StatusMessage::Kind::lost: {
      auto& state = departures_[static_cast<std::size_t>(status.rank)];
      if (status.kind == StatusMessage::Kind::left) {
        const std::scoped_lock lock(mutex_);
        if_memory_allows([&] {
          last_collectives_[static_cast<std::size_t>(status.rank)] =
              decode_last_collectives(status.text);
        });
      }
      // Only this thread writes; release: whoever sees the state sees all that was told before.
      if (state.load(std::memory_order_relaxed) == 0) {
        const std::uint32_t position = departed_.fetch_add(1, std::memory_order_relaxed) + 1;
        state.store(2 * position + (status.kind == StatusMessage::Kind::left ? 1 : 0),
                    std::memory_order_release);
      }
      return;
    }
    case StatusMessage::Kind::aborted: {
      const std::scoped_lock lock(mutex_);
      if (aborted_) return;
      aborted_ = StatusMessage{.kind = status.kind, .rank = status.rank};
      if_memory_allows([&] { aborted_->text = status.text; });
      has_aborted_.store(true, std::memory_order_release);
      return;
    }
    case StatusMessage::Kind::diverged: {
      const std::scoped_lock lock(mutex_);
      diverged_.push_back(status);
      has_diverged_.store(true, std::memory_order_release);
      return;
    }
    case StatusMessage::Kind::gave_up: {
      GaveUp told{.rank = status.rank};
      if (!wire::unpack(status.text, told) || !has(told.at_fault)) return;
      const std::scoped_lock lock(mutex_);
      if (!gave_up_) gave_up_ = std::move(told);
      return;
    }
    case StatusMessage::Kind::at_fault:
      at_fault_.store(status.rank, std::memory_order_relaxed);
      return;
    case StatusMessage::Kind::waits:
    case StatusMessage::Kind::asks:
      return;  // for the store alone
  }
}

// Acquire, in all of these: see update().

bool PeerStatus::has_ended(int rank) const noexcept { return departure(rank) != 0; }

std::uint32_t PeerStatus::departure(int rank) const noexcept {
  return departures_[static_cast<std::size_t>(rank)].load(std::memory_order_acquire) / 2;
}

bool PeerStatus::has_left(int rank) const noexcept {
  return departures_[static_cast<std::size_t>(rank)].load(std::memory_order_acquire) % 2 == 1;
}

// Both the context and the members must be equal: another group may have had the same context.
std::optional<std::uint64_t> PeerStatus::last_collective(int rank, std::uint32_t context,
                                                         std::uint64_t members) const {
  const std::scoped_lock lock(mutex_);
  const std::vector<LastCollective>& collectives =
      last_collectives_[static_cast<std::size_t>(rank)];
  const auto found = std::ranges::find_if(collectives, [&](const LastCollective& last) {
    return last.context == context && last.members == members;
  });
  return found == collectives.end() ? std::nullopt : std::optional(found->sequence);
}

std::optional<int> PeerStatus::fault() const noexcept {
  const int rank = at_fault_.load(std::memory_order_relaxed);
  return rank < 0 ? std::nullopt : std::optional(rank);
}

std::optional<StatusMessage> PeerStatus::aborted() const {
  if (!has_aborted_.load(std::memory_order_acquire)) return std::nullopt;
  const std::scoped_lock lock(mutex_);
  return aborted_;
}

std::optional<GaveUp> PeerStatus::gave_up() const {
  const std::scoped_lock lock(mutex_);
  return gave_up_;
}

// The flag spares the World's thread the mutex in every pass.
std::vector<StatusMessage> PeerStatus::take_diverged() {
  if (!has_diverged_.load(std::memory_order_acquire)) return {};
  const std::scoped_lock lock(mutex_);
  has_diverged_.store(false, std::memory_order_relaxed);
  return std::exchange(diverged_, {});
}

}  // namespace rondo::transport

#include "core/peer_status.hpp"

#include <algorithm>
#include <utility>

#include "bootstrap/wire.hpp"

namespace rondo::transport {

std::string encode(std::span<const LastCollective> parts) {
  const auto told = parts.first(std::min(parts.size(), most_last_parts));
  return bootstrap::pack(std::vector(told.begin(), told.end()));
}

std::vector<LastCollective> decode_last_parts(std::string_view text) {
  std::vector<LastCollective> parts;
  if (!bootstrap::unpack(text, parts)) parts.clear();
  return parts;
}

void PeerStatus::hear(const News& news) {
  if (news.rank < 0 || static_cast<std::size_t>(news.rank) >= fates_.size()) return;
  switch (news.kind) {
    case News::Kind::left:
    case News::Kind::lost: {
      auto& fate = fates_[static_cast<std::size_t>(news.rank)];
      if (news.kind == News::Kind::left) {
        const std::scoped_lock lock(mutex_);
        last_parts_[static_cast<std::size_t>(news.rank)] = decode_last_parts(news.text);
      }
      // Only this thread writes; release: what was heard before is seen before.
      if (fate.load(std::memory_order_relaxed) == 0) {
        const std::uint32_t position = gone_.fetch_add(1, std::memory_order_relaxed) + 1;
        fate.store(2 * position + (news.kind == News::Kind::left ? 1 : 0),
                   std::memory_order_release);
      }
      return;
    }
    case News::Kind::aborted: {
      const std::scoped_lock lock(mutex_);
      if (!aborted_) aborted_ = news;
      has_aborted_.store(true, std::memory_order_release);
      return;
    }
    case News::Kind::diverged: {
      const std::scoped_lock lock(mutex_);
      diverged_.push_back(news);
      has_diverged_.store(true, std::memory_order_release);
      return;
    }
  }
}

bool PeerStatus::gone(int rank) const noexcept { return fate(rank) != 0; }

std::uint32_t PeerStatus::fate(int rank) const noexcept {
  return fates_[static_cast<std::size_t>(rank)].load(std::memory_order_acquire) / 2;
}

bool PeerStatus::left(int rank) const noexcept {
  return fates_[static_cast<std::size_t>(rank)].load(std::memory_order_acquire) % 2 == 1;
}

std::optional<std::uint64_t> PeerStatus::last_part(int rank, std::uint32_t context,
                                                   std::uint64_t members) const {
  const std::scoped_lock lock(mutex_);
  const std::vector<LastCollective>& parts = last_parts_[static_cast<std::size_t>(rank)];
  const auto found = std::ranges::find_if(parts, [&](const LastCollective& part) {
    return part.context == context && part.members == members;
  });
  return found == parts.end() ? std::nullopt : std::optional(found->sequence);
}

std::optional<PeerStatus::News> PeerStatus::aborted() const {
  if (!has_aborted_.load(std::memory_order_acquire)) return std::nullopt;
  const std::scoped_lock lock(mutex_);
  return aborted_;
}

std::vector<PeerStatus::News> PeerStatus::take_diverged() {
  if (!has_diverged_.load(std::memory_order_acquire)) return {};
  const std::scoped_lock lock(mutex_);
  has_diverged_.store(false, std::memory_order_relaxed);
  return std::exchange(diverged_, {});
}

}  // namespace rondo::transport

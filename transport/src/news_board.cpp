#include "news_board.hpp"

#include <utility>

namespace rondo::transport {

void NewsBoard::hear(const News& news) {
  if (news.rank < 0 || static_cast<std::size_t>(news.rank) >= fates_.size()) return;
  switch (news.kind) {
    case News::Kind::left:
    case News::Kind::lost: {
      auto& fate = fates_[static_cast<std::size_t>(news.rank)];
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

bool NewsBoard::gone(int rank) const noexcept { return fate(rank) != 0; }

std::uint32_t NewsBoard::fate(int rank) const noexcept {
  return fates_[static_cast<std::size_t>(rank)].load(std::memory_order_acquire) / 2;
}

bool NewsBoard::left(int rank) const noexcept {
  return fates_[static_cast<std::size_t>(rank)].load(std::memory_order_acquire) % 2 == 1;
}

std::optional<NewsBoard::News> NewsBoard::aborted() const {
  if (!has_aborted_.load(std::memory_order_acquire)) return std::nullopt;
  const std::scoped_lock lock(mutex_);
  return aborted_;
}

std::vector<NewsBoard::News> NewsBoard::take_diverged() {
  if (!has_diverged_.load(std::memory_order_acquire)) return {};
  const std::scoped_lock lock(mutex_);
  has_diverged_.store(false, std::memory_order_relaxed);
  return std::exchange(diverged_, {});
}

}  // namespace rondo::transport

#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>

#include "base/forks.hpp"

namespace rondo::transport {

/// The lock by which a rank's threads take turns, if WorldOptions::threads lets several use its
/// World. Every public call holds it; a thread that waits lets the others in while nothing moves.
/// Turns go in the order in which they are asked for, so that threads that look for progress all
/// the time leave room for one that posts. The thread that holds it may take it again, because a
/// call may be made of others. Otherwise it only refuses a copy: see is_copy().
///
/// A lock for std::lock_guard.
class WorldLock {
 public:
  explicit WorldLock(bool shared) noexcept : shared_(shared) {}
  WorldLock(const WorldLock&) = delete;
  WorldLock& operator=(const WorldLock&) = delete;

  /// May several threads use the World?
  [[nodiscard]] bool shared() const noexcept { return shared_; }

  /// Was it made by a parent of this process? Then lock() throws std::logic_error: see forks.hpp.
  [[nodiscard]] bool is_copy() const noexcept { return made_ != forks(); }

  void lock() {
    if (is_copy()) refuse_copy();
    if (shared_) lock_shared_world();
  }
  void unlock() noexcept {
    if (shared_ && --depth_ == 0) next_turn();
  }

  /// For what only reads: as lock(), but where is_copy() it takes nothing and does not throw.
  [[nodiscard]] std::unique_lock<WorldLock> reading() noexcept {
    if (is_copy()) return {*this, std::defer_lock};
    return std::unique_lock(*this);
  }

  /// While it lives, other threads may use the World, unless the thread is within a call that must
  /// not be left half done (see Undivided).
  class Opening {
   public:
    explicit Opening(WorldLock& lock) noexcept
        : lock_(lock.shared_ && lock.undivided_ == 0 ? &lock : nullptr) {
      if (lock_ == nullptr) return;
      depth_ = lock_->depth_;
      lock_->next_turn();
    }
    Opening(const Opening&) = delete;
    Opening& operator=(const Opening&) = delete;
    ~Opening() {
      if (lock_ == nullptr) return;
      lock_->lock_shared_world();
      lock_->depth_ = depth_;
    }

   private:
    WorldLock* lock_;
    unsigned depth_ = 0;
  };

  /// While it lives, a wait keeps the World to itself: its caller is in the middle of something.
  class Undivided {
   public:
    explicit Undivided(WorldLock& lock) noexcept : lock_(lock) { ++lock_.undivided_; }
    Undivided(const Undivided&) = delete;
    Undivided& operator=(const Undivided&) = delete;
    ~Undivided() { --lock_.undivided_; }

   private:
    WorldLock& lock_;
  };

 private:
  void lock_shared_world() noexcept;
  void next_turn() noexcept;
  [[noreturn]] static void refuse_copy();

  const bool shared_;
  const int made_ = forks();
  std::atomic<std::uint32_t> last_ticket_{0};
  std::atomic<std::uint32_t> turn_{0};  ///< the ticket whose turn it is
  std::atomic<std::thread::id> holder_{};
  // Both belong to the holder.
  unsigned depth_ = 0;
  unsigned undivided_ = 0;
};

}  // namespace rondo::transport

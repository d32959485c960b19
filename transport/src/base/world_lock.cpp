// A ticket lock that the holder may take again. Tickets keep the order in which threads ask: a
// thread that looks for progress all the time would otherwise take the lock again before another
// has woken. A thread looks for its turn a few times before it sleeps, because a turn is usually
// shorter than the two system calls of sleeping and waking.

#include "base/world_lock.hpp"

#include <stdexcept>

#include "base/pause_cpu.hpp"

namespace rondo::transport {
namespace {

// A turn takes about a microsecond, unless its thread has lost its CPU.
constexpr int looks_before_sleep = 200;

}  // namespace

// Relaxed is enough for the holder: a thread finds itself there only if it has stored that.
void WorldLock::lock_shared_world() noexcept {
  const std::thread::id self = std::this_thread::get_id();
  if (holder_.load(std::memory_order_relaxed) == self) {
    ++depth_;
    return;
  }
  const std::uint32_t ticket = last_ticket_.fetch_add(1, std::memory_order_relaxed);
  // Acquire: what the holders before did to the World is seen.
  std::uint32_t turn = turn_.load(std::memory_order_acquire);
  for (int look = 0; turn != ticket && look < looks_before_sleep; ++look) {
    pause_cpu();
    turn = turn_.load(std::memory_order_acquire);
  }
  while (turn != ticket) {
    turn_.wait(turn, std::memory_order_acquire);
    turn = turn_.load(std::memory_order_acquire);
  }
  holder_.store(self, std::memory_order_relaxed);
  depth_ = 1;
}

void WorldLock::refuse_copy() {
  throw std::logic_error(
      "rondo::transport: this World belongs to the parent of this process, which was forked off "
      "after the World had been made; a child must make a World of its own, or use none");
}

void WorldLock::next_turn() noexcept {
  depth_ = 0;
  holder_.store(std::thread::id(), std::memory_order_relaxed);
  turn_.fetch_add(1, std::memory_order_release);
  turn_.notify_all();
}

}  // namespace rondo::transport

// One descriptor for all that a rank can wait for, so that programs with an event loop of their own
// need not wait inside the transport.
//
// Between nodes links have descriptors. Inside a node peers ring a doorbell, a futex, which no
// poll() can watch. A helper thread sleeps on it and passes each ring on to an eventfd. It is
// started when the descriptor is first asked for; so peers pay nothing for each other's event
// loops, and programs without one pay nothing at all.
//
// No ring is lost: arm() first empties the eventfd, then marks the rank asleep, then makes progress
// once more, with a full fence between. Whoever publishes after that progress sees the mark and
// rings; the helper compares the doorbell with what it saw last, so it cannot sleep through that
// ring. A ring from before may be passed on late, and wakes the loop once for nothing.

#include "world/event_descriptor.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>

#include <rondo/transport/blocked_signals.hpp>

#include "memory/control_block.hpp"
#include "world/world_core.hpp"

namespace rondo::transport {
namespace {

using namespace std::chrono_literals;

// A link that has no descriptor at the moment is looked at so often, as in Wait::sleep().
constexpr auto unarmed_timer = 100us;
// A link may refuse to be armed because of an event that moves no operation. It is tried so often.
constexpr int attempts_to_arm = 8;
constexpr auto helper_slice = 1h;

shm::Descriptor checked(int descriptor, const char* what) {
  if (descriptor < 0) {
    throw std::system_error(errno, std::generic_category(),
                            std::string("World::event_descriptor(): ") + what);
  }
  return shm::Descriptor(descriptor);
}

}  // namespace

EventDescriptor::EventDescriptor(WorldCore& world)
    : world_(&world),
      epoll_(checked(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
      rings_(checked(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")),
      timer_(checked(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK),
                     "timerfd_create")) {
  watch(rings_.get());
  watch(timer_.get());
  const BlockedSignals blocked;
  helper_ = std::thread([this] { pass_on_rings(); });
}

// The helper sleeps on the doorbell, so it is rung to end.
EventDescriptor::~EventDescriptor() {
  disarm();
  ending_.store(true, std::memory_order_relaxed);  // ring() releases
  shm::ring(world_->header());
  helper_.join();
}

// Rings that come while one is passed on change the doorbell, and then the next sleep ends at once.
void EventDescriptor::pass_on_rings() noexcept {
  const std::atomic<std::uint32_t>& doorbell = world_->header().doorbell;
  // Zero rather than the doorbell itself: a ring from before this thread began is passed on, too.
  std::uint32_t seen = 0;
  while (!ending_.load(std::memory_order_relaxed)) {
    const std::uint32_t bell = doorbell.load(std::memory_order_acquire);
    if (bell == seen) {
      shm::futex_wait(doorbell, seen, helper_slice);
      continue;
    }
    seen = bell;
    make_readable();
  }
}

void EventDescriptor::watch(int descriptor) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = descriptor}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) {
    throw std::system_error(errno, std::generic_category(), "World::event_descriptor(): epoll_ctl");
  }
}

bool EventDescriptor::arm() {
  disarm();
  std::uint64_t rings = 0;
  [[maybe_unused]] const auto emptied = ::read(rings_.get(), &rings, sizeof rings);
  world_->begin_sleep();
  std::chrono::nanoseconds slice = interval_;
  bool may_sleep = false;
  try {
    may_sleep = !world_->progress() && !has_new_abort() && arm_link(slice);
  } catch (...) {
    world_->end_sleep();
    throw;
  }
  if (!may_sleep) {
    world_->end_sleep();
    return false;
  }
  set_timer(slice);
  armed_ = true;
  return true;
}

void EventDescriptor::disarm() noexcept {
  if (!armed_) return;
  armed_ = false;
  world_->end_sleep();
  // The loop is another thread's, and may be polling: it looks, and arms again.
  if (world_->lock().shared()) make_readable();
}

void EventDescriptor::make_readable() noexcept {
  const std::uint64_t one = 1;
  // It can fail only when the counter is full, and then the descriptor is readable.
  [[maybe_unused]] const auto written = ::write(rings_.get(), &one, sizeof one);
}

// Told once: a loop that goes on after an abort would never sleep again.
bool EventDescriptor::has_new_abort() {
  if (abort_told_ || !world_->aborted()) return false;
  abort_told_ = true;
  return true;
}

bool EventDescriptor::arm_link(std::chrono::nanoseconds& slice) {
  Link* const link = world_->fabric();
  if (link == nullptr || link->rings_doorbell()) return true;
  for (int attempt = 0; attempt < attempts_to_arm; ++attempt) {
    if (const std::optional<int> descriptor = link->arm()) {
      if (*descriptor != link_) watch(*descriptor);
      link_ = *descriptor;
      return true;
    }
    if (world_->progress()) return false;
  }
  slice = unarmed_timer;
  return true;
}

// Setting it also forgets that it has expired.
void EventDescriptor::set_timer(std::chrono::nanoseconds slice) noexcept {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(slice);
  const itimerspec once{
      .it_interval = {},
      .it_value = {.tv_sec = seconds.count(), .tv_nsec = (slice - seconds).count()}};
  ::timerfd_settime(timer_.get(), 0, &once, nullptr);
}

}  // namespace rondo::transport

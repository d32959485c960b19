// Signals that come all the time, as those of a profiler do, and end no wait.

#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>

#include <array>
#include <atomic>
#include <chrono>
#include <numeric>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>

#include "bootstrap/node_connector.hpp"
#include "bootstrap/sockets.hpp"
#include "memory/memory.hpp"
#include "support/processes.hpp"

namespace rondo::transport::signals_test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// How many SIGPROF this process has handled, once there is a Profiler.
std::atomic<int> profiler_signals{0};

/// Counts SIGPROF instead of dying of it. System calls are not restarted after it.
void handle_profiler_signals() {
  struct sigaction action{};
  action.sa_handler = [](int) { profiler_signals += 1; };
  ASSERT_EQ(::sigaction(SIGPROF, &action, nullptr), 0);
}

/// Sends this process SIGPROF every millisecond, whether it computes or waits.
class Profiler {
 public:
  Profiler() {
    handle_profiler_signals();
    sigevent event{};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGPROF;
    EXPECT_EQ(::timer_create(CLOCK_MONOTONIC, &event, &timer_), 0);
    constexpr timespec millisecond{.tv_sec = 0, .tv_nsec = 1'000'000};
    const itimerspec period{.it_interval = millisecond, .it_value = millisecond};
    EXPECT_EQ(::timer_settime(timer_, 0, &period, nullptr), 0);
  }
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;
  ~Profiler() { ::timer_delete(timer_); }

 private:
  timer_t timer_ = {};
};

// Runs `wait` on a thread, has it handle signals, then ends it by `end`. Returns `wait`'s result.
template <typename Wait, typename End>
auto interrupted(Wait wait, End end) {
  constexpr int signals = 20;
  handle_profiler_signals();
  profiler_signals = 0;
  std::atomic<bool> over = false;
  decltype(wait()) result{};
  std::thread waiter([&] {
    result = wait();
    over = true;
  });
  for (int i = 1; i <= signals; ++i) {
    ::pthread_kill(waiter.native_handle(), SIGPROF);
    while (profiler_signals < i && !over) std::this_thread::yield();
  }
  end();
  waiter.join();
  return result;
}

TEST(SignalsTest, DoNotEndTheWaitForACard) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends.data()), 0);
  const shm::Descriptor mine(ends[0]);
  const shm::Descriptor other(ends[1]);

  const auto received = interrupted(
      [&] { return bootstrap::receive_card(mine.get(), Clock::now() + 60s); },
      [&] {
        EXPECT_TRUE(bootstrap::send_card(other.get(), {.self = {.rank = 3}},
                                         {.control = 0, .arena = 0, .process = 0, .recorder = 0}));
      });

  ASSERT_TRUE(received);
  EXPECT_EQ(received->card.self.rank, 3U);
}

// A listener with one connection that nobody accepts lets no second one in.
TEST(SignalsTest, DoNotEndTheWaitForAConnection) {
  const auto listener = bootstrap::listen_at({.host = "127.0.0.1", .port = 0});
  ASSERT_EQ(::listen(listener.get(), 0), 0);
  const bootstrap::Address address = bootstrap::own_address(listener.get());
  const auto first = bootstrap::connect_until(address, Clock::now() + 60s);
  ASSERT_TRUE(first.valid());

  shm::Descriptor accepted;
  const auto second =
      interrupted([&] { return bootstrap::connect_until(address, Clock::now() + 60s); },
                  [&] { accepted = shm::Descriptor(::accept(listener.get(), nullptr, nullptr)); });

  EXPECT_TRUE(second.valid());
}

// Linux takes back what a call had allocated when a signal comes.
TEST(SignalsTest, DoNotKeepMemoryFromGrowing) {
  constexpr std::size_t bytes = std::size_t{256} << 20U;
  shm::Segment segment = shm::Segment::create("signals-test", bytes);
  const Profiler profiler;

  segment.grow(bytes);

  EXPECT_EQ(segment.size(), bytes);
}

void attach_and_reduce() {
  const Profiler profiler;
  for (int i = 0; i < 3; ++i) {
    World world = World::attach(rondo::test::quick_options());
    const int sum = world.size() * (world.size() - 1) / 2;
    std::pmr::vector<int> shared(300'000, world.rank(), &world.arena());
    std::vector<int> ordinary(100'000, world.rank());
    std::vector<int> small{world.rank()};

    world.communicator().allreduce(std::span(shared)).wait();
    world.communicator().allreduce(std::span(ordinary)).wait();
    world.communicator().split(0).allreduce(std::span(small)).wait();

    EXPECT_TRUE(rondo::test::all_are(shared, sum));
    EXPECT_TRUE(rondo::test::all_are(ordinary, sum));
    EXPECT_EQ(small[0], sum);
  }
  EXPECT_GT(profiler_signals, 0);
}

TEST(SignalsTest, DoNotDisturbRanksThatConnectOverSocketsOfTheNode) {
  rondo::test::expect_success(3, rondo::test::meet_locally(), attach_and_reduce);
}

TEST(SignalsTest, DoNotDisturbRanksThatJoinTheStore) {
  rondo::test::expect_success(3, rondo::test::meet_over_tcp(), attach_and_reduce);
}

}  // namespace
}  // namespace rondo::transport::signals_test

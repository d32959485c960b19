// Event loops: a program polls World::event_descriptor() beside descriptors of its own and never
// waits in the transport. Most tests turn the periodic checks off, so a lost
// wake-up would block poll() for good, and the test's time limit would end it.

#include <poll.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <latch>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>
#include <rondo/transport/request.hpp>

#include "support/backends.hpp"
#include "support/expect_error.hpp"
#include "support/processes.hpp"
#include "support/world.hpp"

namespace rondo::transport::event_descriptor_test {
namespace {

using namespace std::chrono_literals;
using test::Backend;

constexpr std::chrono::nanoseconds no_checks = 0ns;
constexpr std::chrono::nanoseconds usual_checks = 50ms;

/// Sleeps in poll() until `request` has ended.
void finish(World& world, Request request, std::chrono::nanoseconds checks = no_checks) {
  while (!request.test()) {
    if (!world.arm()) continue;
    pollfd entry{.fd = world.event_descriptor(checks), .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&entry, 1, -1), 1);
  }
}

/// A pipe of the program itself.
class Pipe {
 public:
  Pipe() { EXPECT_EQ(::pipe(ends_.data()), 0); }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    for (const int end : ends_) ::close(end);
  }
  [[nodiscard]] int reading() const { return ends_[0]; }
  void put() const {
    const char byte = 'x';
    ASSERT_EQ(::write(ends_[1], &byte, 1), 1);
  }
  void take() const {
    char byte = 0;
    ASSERT_EQ(::read(ends_[0], &byte, 1), 1);
  }

 private:
  std::array<int, 2> ends_{};
};

/// A number goes to and fro between two ranks and grows by one with each message.
void play_ping_pong(World& world, int rounds) {
  static_cast<void>(world.event_descriptor(no_checks));
  Communicator& comm = world.communicator();
  const int peer = 1 - comm.rank();
  int value = 0;
  for (int round = 0; round < rounds; ++round) {
    if (comm.rank() == 0) finish(world, comm.send(std::span<const int>(&value, 1), peer));
    finish(world, comm.recv(std::span(&value, 1), peer));
    ++value;
    if (comm.rank() == 1) finish(world, comm.send(std::span<const int>(&value, 1), peer));
  }
  EXPECT_EQ(value, 2 * rounds - (comm.rank() == 0 ? 0 : 1));
}

void allreduce_often(World& world, int rounds, std::size_t count) {
  static_cast<void>(world.event_descriptor(no_checks));
  Communicator& comm = world.communicator();
  const int ranks = world.size();
  for (int round = 0; round < rounds; ++round) {
    std::vector<int> sums(count, world.rank() + round);
    finish(world, comm.allreduce(std::span(sums)));
    ASSERT_TRUE(test::all_are(sums, ranks * (ranks - 1) / 2 + ranks * round)) << round;
  }
}

class EventDescriptorTest : public testing::TestWithParam<Backend> {
 protected:
  test::World world(int ranks, WorldOptions options = test::quick_options()) const {
    return {GetParam(), ranks, std::move(options)};
  }
};

TEST_P(EventDescriptorTest, LosesNoWakeUpIn5000Exchanges) {
  world(2).run([](World& world) { play_ping_pong(world, 5'000); });
}

TEST_P(EventDescriptorTest, CompletesSmallAllreduces) {
  world(3).run([](World& world) { allreduce_often(world, 1'000, 4); });
}

TEST_P(EventDescriptorTest, CompletesLargeAllreduces) {
  world(3).run([](World& world) { allreduce_often(world, 5, 300'000); });
}

// Rank 1 sends only after rank 0 has told it to, which rank 0 does when its own pipe is readable.
TEST_P(EventDescriptorTest, ServesADescriptorOfTheProgramBesides) {
  world(2).run([](World& world) {
    Communicator& comm = world.communicator();
    static_cast<void>(world.event_descriptor(no_checks));
    int value = 0;
    if (comm.rank() == 1) {
      finish(world, comm.recv(std::span(&value, 1), 0));
      finish(world, comm.send(std::span<const int>(&value, 1), 0));
      return;
    }
    const Pipe pipe;
    pipe.put();
    const int sent = 42;
    int served = 0;
    Request receive = comm.recv(std::span(&value, 1), 1);
    Request send;
    while (!receive.test()) {
      if (!world.arm()) continue;
      std::array<pollfd, 2> entries{
          {{.fd = world.event_descriptor(no_checks), .events = POLLIN, .revents = 0},
           {.fd = pipe.reading(), .events = POLLIN, .revents = 0}}};
      ASSERT_GT(::poll(entries.data(), entries.size(), -1), 0);
      if (entries[1].revents == 0) continue;
      pipe.take();
      ++served;
      send = comm.send(std::span<const int>(&sent, 1), 1);
    }
    EXPECT_EQ(served, 1);
    EXPECT_EQ(value, 42);
    finish(world, std::move(send));
  });
}

// A rank that has aborted wakes loops; a test() tells why.
TEST_P(EventDescriptorTest, WakesALoopWhenARankAborts) {
  std::latch receiving(1);
  world(2).run([&receiving](World& world) {
    Communicator& comm = world.communicator();
    static_cast<void>(world.event_descriptor());
    if (world.rank() == 1) {
      receiving.wait();
      return world.abort("enough");
    }
    int value = 0;
    Request request = comm.recv(std::span(&value, 1), 1);
    receiving.count_down();
    test::expect_error(Errc::aborted, [&] { finish(world, std::move(request), usual_checks); });
  });
}

INSTANTIATE_TEST_SUITE_P(Links, EventDescriptorTest, testing::ValuesIn(test::all_backends()),
                         [](const auto& backend) { return test::name_of(backend.param); });

TEST(EventDescriptorProcessTest, LosesNoWakeUpIn10000Exchanges) {
  test::expect_success(2, [](World& world) { play_ping_pong(world, 10'000); });
}

TEST(EventDescriptorProcessTest, CompletesAllreducesOfThreeProcesses) {
  test::expect_success(3, [](World& world) {
    allreduce_often(world, 1'000, 4);
    allreduce_often(world, 5, 300'000);
  });
}

// Nobody wakes the loop of rank 0: the periodic check finds that rank 1 is gone.
TEST(EventDescriptorProcessTest, NoticesAPeerThatIsKilled) {
  test::Processes processes(2, test::quick_options(), [](World& world) {
    Communicator& comm = world.communicator();
    comm.barrier().wait();
    if (world.rank() == 1) ::_exit(3);
    int value = 0;
    Request request = comm.recv(std::span(&value, 1), 1);
    static_cast<void>(world.event_descriptor());
    test::expect_error(Errc::peer_lost, [&] { finish(world, std::move(request), usual_checks); });
  });
  EXPECT_EQ(processes.wait(0), 0);
  EXPECT_EQ(processes.wait(1), 3);
}

TEST(EventDescriptorUseTest, IsTheSameInEveryCall) {
  test::World(1).run([](World& world) {
    EXPECT_EQ(world.event_descriptor(), world.event_descriptor(1ms));
    EXPECT_TRUE(world.arm());
  });
}

TEST(EventDescriptorUseTest, RefusesWhatCannotWork) {
  test::World(1).run([](World& world) {
    EXPECT_THROW(static_cast<void>(world.arm()), std::invalid_argument);
    EXPECT_THROW(static_cast<void>(world.event_descriptor(-1ms)), std::invalid_argument);
  });
  WorldOptions spins = test::quick_options();
  spins.waiting = Waiting::spin;
  test::World(1, spins).run([](World& world) {
    EXPECT_THROW(static_cast<void>(world.event_descriptor()), std::invalid_argument);
  });
}

}  // namespace
}  // namespace rondo::transport::event_descriptor_test

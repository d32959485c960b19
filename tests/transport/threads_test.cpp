// Threads::multiple: several threads of a rank use one World at the same time, each with
// communicators and requests of its own. Where threads of different ranks wait for each other
// crosswise, a thread that kept the World to itself while it waits would block all of them, and the
// test's time limit would end it.

#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <latch>
#include <memory_resource>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>
#include <rondo/transport/request.hpp>

#include "support/backends.hpp"
#include "support/error_text.hpp"
#include "support/expect_error.hpp"
#include "support/processes.hpp"
#include "support/sanitized.hpp"
#include "support/world.hpp"

namespace rondo::transport::threads_test {
namespace {

using namespace std::chrono_literals;
using test::Backend;

/// Runs body(thread) in so many threads of this rank, and passes the first exception on.
void run_threads(int threads, const std::function<void(int)>& body) {
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(threads));
  std::vector<std::thread> running;
  for (int thread = 0; thread < threads; ++thread) {
    running.emplace_back([&, thread] {
      try {
        body(thread);
      } catch (...) {
        failures[static_cast<std::size_t>(thread)] = std::current_exception();
      }
    });
  }
  for (std::thread& each : running) each.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

std::vector<Communicator> one_for_each(World& world, int threads) {
  std::vector<Communicator> all;
  for (int thread = 0; thread < threads; ++thread) all.push_back(world.communicator().dup());
  return all;
}

/// How many of these rounds are run: rare orders are for the builds without the address sanitizer.
constexpr int some(int rounds) { return test::address_sanitized ? rounds / 4 : rounds; }

std::int64_t sum_of_ranks(const World& world) {
  return std::int64_t{world.size()} * (world.size() - 1) / 2;
}

/// Collectives of all kinds, messages to the next rank and from the one before, small and large, in
/// the arena and outside.
void work(World& world, Communicator& comm, int thread, int rounds) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  const int next = (comm.rank() + 1) % comm.size();
  const int before = (comm.rank() + comm.size() - 1) % comm.size();
  for (int round = 0; round < rounds; ++round) {
    const std::size_t count = round % 16 == 0 ? 40'000 : 1 + static_cast<std::size_t>(round) % 700;
    std::pmr::memory_resource* const memory =
        round % 2 == 0 ? &world.arena() : std::pmr::get_default_resource();
    const std::int64_t mark = 1000 * thread + round;

    std::pmr::vector<std::int64_t> sums(count, comm.rank() + mark, memory);
    Request reduced = comm.allreduce(std::span(sums));
    std::pmr::vector<std::int64_t> sent(count, 10 * mark + comm.rank(), memory);
    std::pmr::vector<std::int64_t> received(count, -1, memory);
    Request sending = comm.send(std::span<const std::int64_t>(sent), next, thread);
    Request receiving = comm.recv(std::span(received), before, thread);
    reduced.wait();
    ASSERT_TRUE(test::all_are(sums, sum_of_ranks(world) + comm.size() * mark)) << round;

    std::pmr::vector<std::int64_t> all(ranks, memory);
    comm.allgather(std::array{mark + comm.rank()}, std::span(all)).wait();
    for (std::size_t r = 0; r < ranks; ++r) {
      ASSERT_EQ(all[r], mark + static_cast<std::int64_t>(r)) << round;
    }
    receiving.wait();
    ASSERT_TRUE(test::all_are(received, 10 * mark + before)) << round;
    while (!sending.test()) world.progress();
    comm.barrier().wait();
  }
}

WorldOptions several_threads() {
  WorldOptions options = test::quick_options();
  options.threads = Threads::multiple;
  return options;
}

class ThreadsTest : public testing::TestWithParam<Backend> {
 protected:
  test::World world(int ranks, const WorldOptions& options = several_threads()) const {
    return {GetParam(), ranks, options};
  }
};

TEST_P(ThreadsTest, TwoAtATimeGetTheirOwnResults) {
  world(3).run([](World& world) {
    std::vector<Communicator> comms = one_for_each(world, 2);
    run_threads(2, [&](int thread) {
      work(world, comms[static_cast<std::size_t>(thread)], thread, some(150));
    });
  });
}

TEST_P(ThreadsTest, FiveAtATimeGetTheirOwnResults) {
  world(2).run([](World& world) {
    std::vector<Communicator> comms = one_for_each(world, 5);
    run_threads(5, [&](int thread) {
      work(world, comms[static_cast<std::size_t>(thread)], thread, some(40));
    });
  });
}

// On rank 0 thread 1 posts only after thread 0 has its result, on rank 1 the other way round, and
// the threads that begin have waited, awake and asleep, before their peers begin.
TEST_P(ThreadsTest, WaitCrosswise) {
  std::array<std::latch, 2> waits{std::latch(1), std::latch(1)};  // of the World's ranks
  world(2).run([&](World& world) {
    std::vector<Communicator> comms = one_for_each(world, 2);
    const auto rank = static_cast<std::size_t>(world.rank());
    run_threads(2, [&](int thread) {
      Communicator& comm = comms[static_cast<std::size_t>(thread)];
      int value = 1;
      if (thread == world.rank()) {
        Request request = comm.allreduce(std::span(&value, 1));
        EXPECT_FALSE(request.wait_for(20ms));
        waits[rank].count_down();
        request.wait();
      } else {
        waits[0].wait();  // both ranks have one thread that waits
        waits[1].wait();
        comm.allreduce(std::span(&value, 1)).wait();
      }
      EXPECT_EQ(value, 2);
    });
  });
}

// A message to a thread that sleeps arrives while another thread of its rank works.
TEST_P(ThreadsTest, SleepWhileOthersWork) {
  WorldOptions asleep = several_threads();
  asleep.waiting = Waiting::block;
  world(2, asleep).run([](World& world) {
    std::vector<Communicator> comms = one_for_each(world, 2);
    const int peer = 1 - world.rank();
    run_threads(2, [&](int thread) {
      if (thread == 0) {
        work(world, comms[0], 0, some(150));
        const int done = 7;
        comms[1].send(std::span(&done, 1), peer, 3).wait();
      } else {
        int done = 0;
        comms[1].recv(std::span(&done, 1), peer, 3).wait();
        EXPECT_EQ(done, 7);
      }
    });
  });
}

TEST_P(ThreadsTest, ShareTheMessagesOfACommunicator) {
  world(2).run([](World& world) {
    Communicator& comm = world.communicator();
    const int peer = 1 - comm.rank();
    run_threads(4, [&](int thread) {
      for (int round = 0; round < some(200); ++round) {
        const int sent = 1000 * thread + round;
        int received = -1;
        Request receiving = comm.recv(std::span(&received, 1), peer, thread);
        comm.send(std::span(&sent, 1), peer, thread).wait();
        receiving.wait();
        ASSERT_EQ(received, sent);
      }
    });
  });
}

TEST_P(ThreadsTest, OneAtItsDeadlineFailsAlone) {
  WorldOptions hasty = several_threads();
  hasty.deadline = 2s;
  std::latch over(2);
  world(2, hasty).run([&](World& world) {
    std::vector<Communicator> comms = one_for_each(world, 2);
    run_threads(2, [&](int thread) {
      if (thread == 0 && world.rank() == 0) {
        test::expect_error(Errc::deadline_exceeded, [&] { comms[0].barrier().wait(); });
        over.count_down();
      } else if (thread == 1) {
        work(world, comms[1], 1, 30);
      } else {
        over.count_down();
      }
    });
    over.wait();
  });
}

TEST_P(ThreadsTest, AllNoticeAnAbort) {
  std::latch waiting(2);
  world(2).run([&](World& world) {
    std::vector<Communicator> comms = one_for_each(world, 2);
    if (world.rank() == 0) {
      waiting.wait();
      world.abort("enough");
      return;
    }
    run_threads(2, [&](int thread) {
      Request request = comms[static_cast<std::size_t>(thread)].barrier();
      waiting.count_down();
      test::expect_error(Errc::aborted, [&] { request.wait(); });
    });
  });
}

// An operation that one rank posts alone is complete at once, and waits for nothing.
TEST(ThreadsAbortTest, EndsWhatIsCompleteAtOnce) {
  test::World(1).run([](World& world) {
    std::vector<float> data(8, 1.0F);
    Communicator& comm = world.communicator();
    comm.allreduce(std::span(data)).wait();
    std::thread([&] { world.abort("time is over"); }).join();

    EXPECT_THAT(rondo::test::error_text<Error>([&] {
                  comm.allreduce(std::span(data)).wait();  // complete when it was posted
                  comm.allreduce(std::span(data)).wait();
                }),
                testing::HasSubstr("time is over"));
  });
}

TEST_P(ThreadsTest, MakeAndEndArraysAndRequests) {
  world(2).run([](World& world) {
    std::vector<Communicator> comms = one_for_each(world, 3);
    run_threads(3, [&](int thread) {
      Communicator comm = std::move(comms[static_cast<std::size_t>(thread)]);
      for (int round = 0; round < 50; ++round) {
        std::pmr::vector<float> data(1'000, 1.0F, &world.arena());
        Plan plan = comm.plan_allreduce(std::span(data));
        plan.start().wait();
        ASSERT_TRUE(test::all_are(data, 2.0F));
        static_cast<void>(comm.barrier());  // its end is waited for where it is destroyed
      }
    });
    EXPECT_EQ(world.arena().used_bytes(), 0U);
  });
}

INSTANTIATE_TEST_SUITE_P(Links, ThreadsTest, testing::ValuesIn(test::all_backends()),
                         [](const auto& backend) { return test::name_of(backend.param); });

// Two threads make communicators of the same ranks at the same time.
TEST(ThreadsSplitTest, IsForOneThreadAtATime) {
  std::latch refused(1);
  test::World(2, several_threads()).run([&](World& world) {
    if (world.rank() == 1) refused.wait();
    std::atomic<int> failures{0};
    if (world.rank() == 0) {
      std::vector<Communicator> comms = {};
      // Rank 1 comes only when one of the two has been refused, so the other one is still waiting.
      run_threads(2, [&](int) {
        try {
          const Communicator made = world.communicator().dup();
        } catch (const std::logic_error& error) {
          EXPECT_THAT(error.what(), testing::HasSubstr("another thread of this rank"));
          ++failures;
          refused.count_down();
        }
      });
      EXPECT_EQ(failures, 1);
    } else {
      const Communicator made = world.communicator().dup();
    }
  });
}

TEST(ThreadsProcessTest, ThreeAtATimeGetTheirOwnResults) {
  test::Processes processes(2, several_threads(), [](World& world) {
    std::vector<Communicator> comms = one_for_each(world, 3);
    run_threads(3, [&](int thread) {
      work(world, comms[static_cast<std::size_t>(thread)], thread, some(200));
    });
  });
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(processes.wait(rank), 0) << "rank " << rank;
}

TEST(ThreadsProcessTest, AllNoticeAPeerThatIsKilled) {
  test::Processes processes(2, several_threads(), [](World& world) {
    std::vector<Communicator> comms = one_for_each(world, 2);
    world.communicator().barrier().wait();
    if (world.rank() == 1) ::_exit(3);
    run_threads(2, [&](int thread) {
      test::expect_error(
          Errc::peer_lost, [&] { comms[static_cast<std::size_t>(thread)].barrier().wait(); }, 1);
    });
  });
  EXPECT_EQ(processes.wait(0), 0);
  EXPECT_EQ(processes.wait(1), 3);
}

// Sends and receives until both sides are `over`.
void exchange_until_over(Communicator& comm, const std::atomic<bool>& over) {
  bool both_are = false;
  while (!both_are) {
    const int mine = over ? 1 : 0;
    int theirs = 0;
    Request receiving = comm.recv(std::span(&theirs, 1), 1 - comm.rank());
    comm.send(std::span(&mine, 1), 1 - comm.rank()).wait();
    receiving.wait();
    both_are = mine + theirs == 2;
  }
}

// Over shared memory no connection breaks: peers on other nodes learn only from the store that rank
// 2 has ended. All messages that arrive meanwhile are another thread's.
TEST(ThreadsProcessTest, TrafficOfAnotherThreadHidesNoLoss) {
  WorldOptions wanted = several_threads();
  wanted.fabric = {.name = "shm", .fake_nodes = 3};
  test::Processes processes(3, test::meet_over_tcp(), [&] {
    World world = World::attach(wanted);
    Communicator all = world.communicator().dup();
    Communicator pair = world.communicator().split(world.rank() / 2);
    if (world.rank() == 2) ::_exit(3);
    std::atomic<bool> over = false;
    std::thread traffic([&] { exchange_until_over(pair, over); });
    const auto begin = std::chrono::steady_clock::now();
    test::expect_error(Errc::peer_lost, [&] { all.barrier().wait(); }, 2);
    // And not at the deadline.
    EXPECT_LT(std::chrono::steady_clock::now() - begin, wanted.deadline / 2);
    over = true;
    traffic.join();
  });
  EXPECT_EQ(processes.wait(0), 0);
  EXPECT_EQ(processes.wait(1), 0);
  EXPECT_EQ(processes.wait(2), 3);
}

}  // namespace
}  // namespace rondo::transport::threads_test

// A failure in flight is an error that tells who, where and in what; never a hang. The first suite
// runs on one node and on all ways between nodes, the second has what only one node shows.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <latch>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>

#include "support/backends.hpp"
#include "support/expect_error.hpp"
#include "support/world.hpp"

namespace rondo::transport::failure_test {
namespace {

using namespace std::chrono_literals;
using test::Backend;
using test::error_of;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

WorldOptions short_deadline() {
  WorldOptions options = test::quick_options();
  options.deadline = 500ms;
  return options;
}

class AnyFailureTest : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (test::may_abort_at_a_failure(GetParam())) {
      GTEST_SKIP() << "an assertion of UCX 1.18 ends some of these processes";
    }
  }
  test::World world(int ranks) const { return {GetParam(), ranks}; }
};

TEST_P(AnyFailureTest, ADifferentCountIsAMismatchOnEveryRankThatShowsBothSides) {
  for (const std::size_t elements : {1U, 1024U, 100'000U}) {
    world(4).run([&](World& world) {
      std::pmr::vector<float> data(elements + (world.rank() == 1 ? 1 : 0), &world.arena());

      const auto error = error_of(world.communicator().allreduce(std::span(data)));

      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), Errc::mismatch);
      EXPECT_THAT(error->what(),
                  AllOf(HasSubstr("allreduce #1 of " + std::to_string(elements + 1) + " f32"),
                        HasSubstr("allreduce #1 of " + std::to_string(elements) + " f32")));
      if (GetParam() == Backend::shm) {
        EXPECT_THAT(error->what(),
                    HasSubstr("rank 1 allreduce #1 of " + std::to_string(elements + 1) + " f32"));
      }
    });
  }
}

TEST_P(AnyFailureTest, ADifferentOperationIsAMismatchOnEveryRank) {
  world(4).run([](World& world) {
    Communicator& comm = world.communicator();
    std::vector<float> data(5000);
    Request request =
        world.rank() == 2 ? comm.broadcast(std::span(data), 2) : comm.allreduce(std::span(data));

    const auto error = error_of(std::move(request));

    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Errc::mismatch);
    EXPECT_THAT(error->what(), AllOf(HasSubstr("allreduce #1"), HasSubstr("broadcast #1")));
  });
}

TEST_P(AnyFailureTest, PoisonsTheCommunicatorAndNoOther) {
  world(3).run([](World& world) {
    Communicator group = world.communicator().split(0);
    std::vector<int> data(world.rank() == 0 ? 1 : 2);
    const auto first = error_of(group.allreduce(std::span(data)));

    const auto again = error_of(group.barrier());
    const auto other = error_of(world.communicator().barrier());

    // Between nodes a rank that has all it needs before a difference is found is told by the next
    // operation.
    if (GetParam() == Backend::shm) {
      EXPECT_TRUE(first);
    }
    ASSERT_TRUE(again);
    EXPECT_EQ(again->code(), Errc::mismatch);
    EXPECT_FALSE(other);
  });
}

// A connection that must be closed to cancel it is needed by the others, too.
TEST_P(AnyFailureTest, KeepsACommunicatorWhenAnotherFailsWithASendThatNobodyReceives) {
  world(2).run([](World& world) {
    Communicator failing = world.communicator().split(0);
    const std::vector<std::int32_t> data(1 << 20U);
    std::vector<std::int32_t> sum(1, 1);

    Request send;
    if (world.rank() == 0) send = failing.send(std::span(data), 1, 5);
    Request other = world.rank() == 0 ? failing.barrier() : failing.allreduce(std::span(sum));
    EXPECT_THROW(other.wait(), Error);
    world.communicator().allreduce(std::span(sum)).wait();

    EXPECT_EQ(sum[0], 2);
  });
}

TEST_P(AnyFailureTest, NamesTheLostRankAndTheOperation) {
  world(4).run_without(3, [](World& world) {
    std::vector<double> data(100'000);

    const auto error = error_of(world.communicator().allreduce(std::span(data)));

    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Errc::peer_lost);
    EXPECT_EQ(error->detail().rank, 3);
    EXPECT_GT(error->detail().pid, 0);
    EXPECT_THAT(error->what(),
                AllOf(HasSubstr("rank 3 (pid "), HasSubstr("allreduce #1 of 100000 f64 (sum)")));
  });
}

// It was found when the neighbours before it had ended, or at the deadline.
TEST_P(AnyFailureTest, FindsAFaultBehindANeighbourThatIsStillAwaited) {
  WorldOptions options = test::quick_options();
  options.deadline = 5s;
  test::World(GetParam(), 3, options).run([](World& world) {
    Communicator group = world.communicator().split(0);
    std::vector<int> data(4);
    const std::span<int> in(data);
    if (world.rank() == 1) {
      static_cast<void>(error_of(group.send(std::span<const int>(data), 2)));  // too long
    }
    if (world.rank() == 2) {
      const Strided<const int> nothing(in.first(0));
      const std::vector<Neighbour> neighbours = {Neighbour(0, nothing, Strided<int>(in.first(1))),
                                                 Neighbour(1, nothing, Strided<int>(in.last(1)))};
      const auto error = error_of(group.sendrecv(neighbours));
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), Errc::mismatch);
      EXPECT_EQ(error->detail().rank, 1);
    }
    world.communicator().barrier().wait();  // rank 0 takes no part until all is over
  });
}

// Some rank leaves after its part: whoever is still in the operation does not need it any more. By
// turns a small and a large one.
TEST_P(AnyFailureTest, DoesNotMindARankThatLeavesAfterItsPart) {
  const int repetitions = GetParam() == Backend::shm ? 50 : 5;
  for (int i = 0; i < repetitions; ++i) {
    world(3).run([i](World& world) {
      std::vector<int> data(i % 2 == 0 ? 10'000 : 3, 1);
      world.communicator().allreduce(std::span(data)).wait();
      EXPECT_TRUE(test::all_are(data, 3));
    });
  }
}

// Others may be in any call when the abort reaches them.
TEST_P(AnyFailureTest, GivesTheReasonOfTheAbort) {
  world(4).run([](World& world) {
    std::optional<Error> error;
    try {
      Communicator group = world.communicator().split(0);
      if (world.rank() == 1) {
        world.abort("the disk is full");
        world.abort("a second reason changes nothing");
        return;
      }
      group.barrier().wait();
    } catch (const Error& thrown) {
      error = thrown;
    }

    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Errc::aborted);
    EXPECT_THAT(error->what(), AllOf(HasSubstr("rank 1 (pid"), HasSubstr("the disk is full")));
  });
}

// A rank that gave up an operation half-way gets its memory back: nobody writes into it any more.
TEST_P(AnyFailureTest, MemoryIsItsOwnersAgainAfterAFailure) {
  world(3).run_without(2, [](World& world) {
    std::vector<std::int64_t> data(400'000, 1);
    EXPECT_TRUE(error_of(world.communicator().allreduce(std::span(data))));

    std::fill(data.begin(), data.end(), 77);
    for (int i = 0; i < 100; ++i) world.progress();

    EXPECT_TRUE(test::all_are(data, 77));
  });
}

// Rank 2 waits for rank 1 first, and rank 1 then for rank 0, which does nothing.
TEST_P(AnyFailureTest, ADeadlineNamesTheRankThatAllOthersWaitFor) {
  std::latch rank_2_waits(1);
  std::latch both_have_failed(2);
  WorldOptions options = test::quick_options();
  options.deadline = 2s;
  options.stall_warning = 10ms;
  options.on_stall = [&](const Stall& stall) {
    if (stall.rank == 2 && stall.operation == "barrier #1") rank_2_waits.count_down();
  };
  test::World(GetParam(), 3, options).run([&](World& world) {
    Communicator first = world.communicator().split(world.rank() < 2 ? 0 : 1);
    Communicator last = world.communicator().split(world.rank() > 0 ? 0 : 1);
    if (world.rank() == 0) return both_have_failed.wait();
    if (world.rank() == 1) rank_2_waits.wait();

    const auto error = error_of((world.rank() == 1 ? first : last).barrier());

    both_have_failed.arrive_and_wait();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Errc::deadline_exceeded);
    EXPECT_EQ(error->detail().rank, 0) << error->what();
    if (world.rank() == 2) {
      EXPECT_THAT(error->what(), ContainsRegex("for rank 1 [^,]*, which waits for rank 0 "));
    }
  });
}

// Rank 1 has given up, and not left, when rank 2 waits for it.
TEST_P(AnyFailureTest, ARankThatHasGivenUpLeadsToTheOneThatItWaitedFor) {
  std::latch rank_1_has_failed(1);
  std::latch both_have_failed(2);
  WorldOptions options = test::quick_options();
  options.deadline = 1s;
  test::World(GetParam(), 3, options).run([&](World& world) {
    Communicator first = world.communicator().split(world.rank() < 2 ? 0 : 1);
    Communicator last = world.communicator().split(world.rank() > 0 ? 0 : 1);
    if (world.rank() == 0) return both_have_failed.wait();
    if (world.rank() == 2) rank_1_has_failed.wait();

    const auto error = error_of((world.rank() == 1 ? first : last).barrier());

    if (world.rank() == 1) rank_1_has_failed.count_down();
    both_have_failed.arrive_and_wait();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Errc::deadline_exceeded);
    EXPECT_EQ(error->detail().rank, 0) << error->what();
  });
}

// The same where rank 1 only looks again and again whether rank 0 has come: by `comes(request)`.
template <typename Comes>
void a_rank_that_looks_waits_too(test::Backend backend, Comes comes) {
  std::latch rank_1_looks(1);
  std::latch rank_2_has_failed(1);
  WorldOptions options = test::quick_options();
  options.deadline = 2s;
  test::World(backend, 3, options).run([&](World& world) {
    Communicator first = world.communicator().split(world.rank() < 2 ? 0 : 1);
    Communicator last = world.communicator().split(world.rank() > 0 ? 0 : 1);
    if (world.rank() == 0) {
      rank_2_has_failed.wait();
      first.barrier().wait();
    } else if (world.rank() == 1) {
      Request request = first.barrier();
      static_cast<void>(comes(request));
      rank_1_looks.count_down();
      while (!comes(request)) continue;
    } else {
      rank_1_looks.wait();

      const auto error = error_of(last.barrier());

      rank_2_has_failed.count_down();
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), Errc::deadline_exceeded);
      EXPECT_EQ(error->detail().rank, 0) << error->what();
      EXPECT_THAT(error->what(), ContainsRegex("for rank 1 [^,]*, which waits for rank 0 "));
    }
  });
}

TEST_P(AnyFailureTest, ARankThatTestsWaitsToo) {
  a_rank_that_looks_waits_too(GetParam(), [](Request& request) { return request.test(); });
}

INSTANTIATE_TEST_SUITE_P(Ways, AnyFailureTest, testing::ValuesIn(test::all_backends()),
                         [](const auto& test) { return std::string(test::name_of(test.param)); });

TEST(FailureTest, ARankThatWaitsForAWhileAgainAndAgainWaitsToo) {
  a_rank_that_looks_waits_too(test::Backend::shm,
                              [](Request& request) { return request.wait_for(3ms); });
}

TEST(FailureTest, NoticesOtherOperationsTypesReductionsAndRoots) {
  test::World(2).run([](World& world) {
    std::vector<float> floats(4);
    std::vector<int> ints(4);
    Communicator& comm = world.communicator();
    const bool first = world.rank() == 0;
    for (int kind = 0; kind < 4; ++kind) {
      Communicator group = comm.split(0);
      Request request;
      if (kind == 0) request = first ? group.barrier() : group.allreduce(std::span(ints));
      if (kind == 1)
        request = first ? group.allreduce(std::span(ints)) : group.allreduce(std::span(floats));
      if (kind == 2)
        request = group.allreduce(std::span(ints), first ? ReduceOp::max : ReduceOp::min);
      if (kind == 3) request = group.broadcast(std::span(ints), world.rank());

      const auto error = error_of(std::move(request));

      ASSERT_TRUE(error) << "kind " << kind;
      EXPECT_EQ(error->code(), Errc::mismatch) << "kind " << kind;
    }
  });
}

// An error names the ranks of the World, whichever communicator it is of.
TEST(FailureTest, NamesARootByItsRankInTheWorld) {
  test::World(4).run([](World& world) {
    Communicator pair = world.communicator().split(world.rank() / 2);
    if (world.rank() < 2) return;
    int value = 0;
    const auto error = error_of(pair.broadcast(std::span(&value, 1), world.rank() - 2));
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(), AllOf(HasSubstr("rank 2 broadcast #1 of 1 i32 from rank 2"),
                                     HasSubstr("rank 3 broadcast #1 of 1 i32 from rank 3")));
  });
}

// Each rank posts something that is right in itself; together they are not.
TEST(FailureTest, NoticesOtherSharesAndRows) {
  test::World(2).run([](World& world) {
    std::vector<int> in(4);
    std::vector<int> out(4);
    const bool first = world.rank() == 0;
    const std::vector<std::size_t> counts{first ? 1U : 2U, first ? 3U : 2U};
    const auto part = std::span(out).first(counts[static_cast<std::size_t>(world.rank())]);
    const std::size_t rows = first ? 2 : 1;
    for (int kind = 0; kind < 4; ++kind) {
      Communicator group = world.communicator().split(0);
      Request request;
      if (kind == 0) request = group.reduce_scatter(in, part, ReduceOp::sum, counts);
      if (kind == 1) {
        request = group.reduce_scatter(Strided<const int>(in.data(), rows, 4 / rows, 4 / rows),
                                       Strided<int>(out.data(), rows, 2 / rows, 2 / rows));
      }
      if (kind == 2) request = group.reduce(in, std::span(out), world.rank());
      if (kind == 3) {
        request = first ? group.alltoall(in, std::span(out)) : group.allreduce(in, std::span(out));
      }

      const auto error = error_of(std::move(request));

      ASSERT_TRUE(error) << "kind " << kind;
      EXPECT_EQ(error->code(), Errc::mismatch) << "kind " << kind;
    }
  });
}

TEST(FailureTest, FailsEverythingThatIsPending) {
  test::World(2).run_without(1, [](World& world) {
    std::vector<int> data(3);
    Request first = world.communicator().barrier();
    Request second = world.communicator().allreduce(std::span(data));

    EXPECT_TRUE(error_of(std::move(first)));

    EXPECT_EQ(second.status(), Errc::peer_lost);
    EXPECT_THROW((void)second.test(), Error);
  });
}

TEST(FailureTest, AWaitForThatTimesOutChangesNothing) {
  for (const Backend backend : {Backend::shm, Backend::shm_nodes, Backend::hierarchy}) {
    std::latch tried(1);
    test::World(backend, 3).run([&](World& world) {
      std::pmr::vector<std::int32_t> data(50'000, 1, &world.arena());
      const bool late = world.rank() == 1;
      if (late) tried.wait();
      Request request = world.communicator().allreduce(std::span(data));
      if (world.rank() == 0) {
        EXPECT_FALSE(request.wait_for(20ms));
        EXPECT_FALSE(request.wait_for(0ms));
        EXPECT_FALSE(request.status());
        EXPECT_FALSE(request.wait_for(20ms));
        tried.count_down();
      }
      EXPECT_TRUE(request.wait_for(60s));
      EXPECT_TRUE(test::all_are(data, 3));
      world.communicator().barrier().wait();
    });
  }
}

// "Never" in milliseconds is more than fits into nanoseconds.
TEST(FailureTest, ADeadlineMayBeNever) {
  WorldOptions options;
  options.deadline = options.stall_warning = std::chrono::milliseconds::max();
  options.bootstrap_deadline = std::chrono::milliseconds::max();
  options.on_stall = [](const Stall& /*stall*/) { ADD_FAILURE(); };
  for (const Backend backend : {Backend::shm, Backend::tcp}) {
    test::World(backend, 2, options).run([](Communicator& comm) {
      if (comm.rank() == 0) {
        int value = 0;
        Request never_sent = comm.recv(std::span(&value, 1), 1, 7);
        EXPECT_FALSE(never_sent.wait_for(20ms));
        never_sent.cancel();
      }
      comm.barrier().wait();
    });
  }
}

// Rank 0 alone meets its deadline. A rank of its node that comes only then learns it from rank 0,
// and not at its own deadline from the clock.
TEST(FailureTest, TellsThePeersOfTheNodeWhyARankGaveUp) {
  for (const Backend backend : {Backend::shm, Backend::hierarchy}) {
    std::latch gave_up(1);
    std::latch over(2);
    test::World(backend, 4, short_deadline()).run([&](World& world) {
      std::vector<float> data(100'000);
      if (world.rank() > 1) return over.wait();
      if (world.rank() == 1) gave_up.wait();

      const auto error = error_of(world.communicator().allreduce(std::span(data)));

      if (world.rank() == 0) gave_up.count_down();
      over.count_down();
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), Errc::deadline_exceeded);
      EXPECT_THAT(error->what(), HasSubstr("allreduce #1 of 100000 f32 (sum) on rank 0 waited"));
      if (world.rank() == 1) {
        EXPECT_THAT(error->what(), AllOf(HasSubstr("rank 0 (pid "), HasSubstr(" gave up: ")));
      }
    });
  }
}

// The rank that finds the difference first gives up its message, and the other one looks into the
// transport only then.
TEST(FailureTest, IsTheSameOnARankThatReceivesALongMessage) {
  std::atomic<bool> posted = false;
  std::atomic<bool> found = false;
  test::World{2}.run([&](World& world) {
    Communicator group = world.communicator().split(0);
    std::vector<std::uint8_t> data(20U << 20U);
    std::vector<float> sum(1);
    const bool sends = world.rank() == 0;
    Request message = sends ? group.send(std::span<const std::uint8_t>(data), 1, 3)
                            : group.recv(std::span(data), 0, 3);
    world.communicator().barrier().wait();  // so that it has begun
    if (sends) {
      while (!posted) std::this_thread::yield();
      const auto error = error_of(group.barrier());
      found = true;
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), Errc::mismatch);
    } else {
      Request other = group.allreduce(std::span(sum));
      posted = true;
      while (!found) std::this_thread::yield();
      for (Request* request : {&message, &other}) {
        const auto error = error_of(std::move(*request));
        ASSERT_TRUE(error);
        EXPECT_EQ(error->code(), Errc::mismatch);
        EXPECT_THAT(error->what(), AllOf(HasSubstr("allreduce #1"), HasSubstr("barrier #1")));
      }
    }
    world.communicator().barrier().wait();
  });
}

// Messages between two ranks need no third one.
TEST(FailureTest, MessagesBetweenOthersGoOnWhenARankHasGivenUp) {
  std::latch gave_up(1);
  std::latch over(3);
  test::World(3, short_deadline()).run([&](World& world) {
    Communicator& ranks = world.communicator();
    if (world.rank() == 0) {
      EXPECT_TRUE(error_of(ranks.barrier()));
      gave_up.count_down();
    } else {
      gave_up.wait();
      std::vector<int> data(30'000, world.rank());
      Request request = world.rank() == 1 ? ranks.send(std::span<const int>(data), 2)
                                          : ranks.recv(std::span(data), 1);
      EXPECT_TRUE(request.wait_for(60s));
      EXPECT_TRUE(test::all_are(data, 1));
    }
    over.arrive_and_wait();
  });
}

TEST(FailureTest, NamesAPeerOnceThatIsToSendAndToReceive) {
  test::World(2, short_deadline()).run([](World& world) {
    Communicator group = world.communicator().split(0);
    const std::vector<float> mine(4, 0.0F);
    std::vector<float> theirs(4);
    if (world.rank() == 0) {
      Request request = group.sendrecv(
          std::vector{Neighbour(1, Strided<const float>(mine), Strided<float>(theirs))});
      EXPECT_THAT(test::expect_error(Errc::deadline_exceeded, [&] { request.wait(); }),
                  AllOf(HasSubstr("sendrecv with rank 1"), Not(HasSubstr("1, 1"))));
    }
    EXPECT_TRUE(world.communicator().barrier().wait_for(60s));
  });
}

TEST(FailureTest, AbortsFromAnotherThread) {
  test::World(2).run([](World& world) {
    Communicator first = world.communicator().split(0);
    Communicator second = world.communicator().split(0);
    std::thread other([&] {
      if (world.rank() == 1) world.abort("stop");
    });

    // Nobody posts the other half of either barrier: only the abort ends them.
    const auto error = error_of((world.rank() == 0 ? first : second).barrier());

    other.join();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Errc::aborted);
  });
}

}  // namespace
}  // namespace rondo::transport::failure_test

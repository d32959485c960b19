// Between nodes as inside one: what goes wrong is an error on every rank that tells who, where and
// in what.

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>

#include "support/backends.hpp"
#include "support/world.hpp"

namespace rondo::transport::span_failure_test {
namespace {

using namespace std::chrono_literals;
using test::Backend;
using testing::AllOf;
using testing::HasSubstr;

// What waiting for `request` throws.
std::optional<Error> error_of(Request request) {
  try {
    request.wait();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

class SpanFailureTest : public testing::TestWithParam<Backend> {
 protected:
  test::World world(int ranks) const { return {GetParam(), ranks}; }
};

TEST_P(SpanFailureTest, ADifferentCountIsAMismatchOnEveryRank) {
  for (const std::size_t elements : {1U, 1024U, 100'000U}) {
    world(4).run([&](World& world) {
      std::pmr::vector<float> data(elements + (world.rank() == 1 ? 1 : 0), &world.arena());

      const auto error = error_of(world.communicator().allreduce(std::span(data)));

      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), Errc::mismatch);
      EXPECT_THAT(error->what(),
                  AllOf(HasSubstr("allreduce #1 of " + std::to_string(elements + 1) + " f32"),
                        HasSubstr("allreduce #1 of " + std::to_string(elements) + " f32")));
    });
  }
}

TEST_P(SpanFailureTest, ADifferentOperationIsAMismatchOnEveryRank) {
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

TEST_P(SpanFailureTest, PoisonsTheCommunicatorAndNoOther) {
  world(3).run([](World& world) {
    Communicator group = world.communicator().split(0);
    std::vector<int> data(world.rank() == 0 ? 1 : 2);
    // Who has got all it needs before a difference is found is told by the next operation.
    static_cast<void>(error_of(group.allreduce(std::span(data))));

    const auto again = error_of(group.barrier());
    const auto other = error_of(world.communicator().barrier());

    ASSERT_TRUE(again);
    EXPECT_EQ(again->code(), Errc::mismatch);
    EXPECT_FALSE(other);
  });
}

TEST_P(SpanFailureTest, NamesTheLostRankAndTheOperation) {
  world(4).run_without(3, [](World& world) {
    std::vector<double> data(100'000);

    const auto error = error_of(world.communicator().allreduce(std::span(data)));

    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Errc::peer_lost);
    EXPECT_EQ(error->detail().rank, 3);
    EXPECT_THAT(error->what(),
                AllOf(HasSubstr("rank 3 (pid "), HasSubstr("allreduce #1 of 100000 f64 (sum)")));
  });
}

TEST_P(SpanFailureTest, DoesNotMindARankThatLeavesAfterItsPart) {
  for (int i = 0; i < 5; ++i) {
    world(3).run([](World& world) {
      std::vector<int> data(10'000, 1);
      world.communicator().allreduce(std::span(data)).wait();
      EXPECT_TRUE(test::all_are(data, 3));
    });
  }
}

TEST_P(SpanFailureTest, EndsAWaitAtItsDeadline) {
  WorldOptions options = test::quick_options();
  options.deadline = 500ms;
  test::World(GetParam(), 2, options).run([](World& world) {
    Communicator group = world.communicator().split(0);
    if (world.rank() == 0) {
      Request request = group.barrier();
      EXPECT_THROW(request.wait(), Error);
      EXPECT_EQ(request.status(), Errc::deadline_exceeded);
    }
    EXPECT_TRUE(world.communicator().barrier().wait_for(60s));
  });
}

// Others may be in any call when the abort reaches them.
TEST_P(SpanFailureTest, GivesTheReasonOfTheAbort) {
  world(4).run([](World& world) {
    std::optional<Error> error;
    try {
      Communicator group = world.communicator().split(0);
      if (world.rank() == 1) return world.abort("the disk is full");
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
TEST_P(SpanFailureTest, MemoryIsItsOwnersAgainAfterAFailure) {
  world(3).run_without(2, [](World& world) {
    std::vector<std::int64_t> data(400'000, 1);
    EXPECT_TRUE(error_of(world.communicator().allreduce(std::span(data))));

    std::fill(data.begin(), data.end(), 77);
    for (int i = 0; i < 100; ++i) world.progress();

    EXPECT_TRUE(test::all_are(data, 77));
  });
}

INSTANTIATE_TEST_SUITE_P(Nodes, SpanFailureTest, testing::ValuesIn(test::node_backends()),
                         [](const auto& test) { return std::string(test::name_of(test.param)); });

}  // namespace
}  // namespace rondo::transport::span_failure_test

// A lost token is an error that names its holder, on every rank, and no rank hangs. Wrong options,
// layers, scripts and states are refused.

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/error.hpp>

#include "support/world.hpp"
#include "sync/cyclic_worker.hpp"

namespace rondo::sync::cyclic_failure_test {
namespace {

using rondo::test::Backend;
using test::CyclicWorker;
using testing::AnyOf;
using testing::HasSubstr;

class CyclicFailureTest : public testing::TestWithParam<Backend> {};

/// Computes until the scheme reports an error; returns its text.
std::string text_of_failure(CyclicWorker& worker) {
  try {
    while (true) worker.compute_minibatch();
  } catch (const transport::Error& error) {
    return error.what();
  }
}

/// Rank 1 leaves when it has the token: it parks it and does not go on. It does not take part in
/// anything afterwards. The others must all learn that it had the token: from its leaving, or from
/// another worker that gave up because of it.
void expect_that_the_holder_is_named(Backend backend, Delay delay) {
  std::vector<Turn> script{{.worker = 0, .minibatches = 1}, {.worker = 1, .minibatches = 1}};
  for (const int worker : {0, 2, 3}) {
    script.push_back({.kind = Turn::Kind::park, .worker = worker, .minibatches = 1});
  }
  rondo::test::World{backend, 4}.run([&](transport::World& world) {
    CyclicWorker worker(world, {.delay = delay, .epoch_samples = 4, .script = script});
    worker.compute_until_parked();
    if (world.rank() == 1) return;

    EXPECT_THAT(text_of_failure(worker),
                AllOf(HasSubstr("the token is lost"), HasSubstr("rank 1"),
                      AnyOf(HasSubstr("its holder is gone"), HasSubstr("worker 1 holds it"))));
  });
}

TEST_P(CyclicFailureTest, WorkersThatWaitLearnWhoHadTheToken) {
  expect_that_the_holder_is_named(GetParam(), Delay::fixed);
}

TEST_P(CyclicFailureTest, WorkersThatNeverWaitLearnWhoHadTheToken) {
  expect_that_the_holder_is_named(GetParam(), Delay::dynamic);
}

INSTANTIATE_TEST_SUITE_P(Ranks, CyclicFailureTest,
                         testing::Values(Backend::shm, Backend::hierarchy, Backend::shm_nodes));

TEST(CyclicFailureTest, TellsWhoHoldsTheTokenWhenAnotherIsLost) {
  const std::vector<Turn> script{{.worker = 0, .minibatches = 1},
                                 {.kind = Turn::Kind::park, .worker = 1, .minibatches = 1},
                                 {.kind = Turn::Kind::park, .worker = 2, .minibatches = 1}};
  rondo::test::World{3}.run([&](transport::World& world) {
    CyclicWorker worker(world, {.epoch_samples = 2, .script = script});
    worker.compute_until_parked();
    if (world.rank() == 1) return;
    if (world.rank() == 0) {
      std::uint64_t value = 0;  // keeps the token until the end
      EXPECT_THROW(world.communicator().wait_signal(2, value).wait(), transport::Error);
      return;
    }

    EXPECT_THAT(text_of_failure(worker),
                AllOf(HasSubstr("worker 0 holds it"), HasSubstr("rank 1")));
  });
}

TEST(CyclicFailureTest, ASchemeWhoseTokenNeverComesCanBeDestroyed) {
  rondo::test::World{Backend::hierarchy, 4}.run([](transport::World& world) {
    CyclicWorker worker(world, {});

    worker.compute_minibatch();

    SUCCEED();  // the destructor must not wait
  });
}

TEST(CyclicMisuseTest, AScriptThatDoesNotFitIsAnError) {
  rondo::test::World{1}.run([](transport::World& world) {
    CyclicWorker worker(world, {.script = {{.kind = Turn::Kind::park, .minibatches = 1}}});

    EXPECT_THROW(worker.compute_minibatch(), std::invalid_argument);
  });
}

const CyclicOptions by_epochs{.delay = Delay::fixed, .epoch_samples = 18};

TEST(CyclicStateTest, TheTokenMustBeAtRest) {
  rondo::test::World{2}.run([](transport::World& world) {
    CyclicWorker worker(world, {.delay = Delay::fixed});
    const std::vector<std::byte> fresh = worker.scheme->save();
    std::vector<float> copy(8);
    std::vector<float> statistics(1);
    worker.scheme->copy_for_evaluation(copy, statistics);
    worker.compute_minibatch();

    EXPECT_THROW((void)worker.scheme->save(), std::logic_error);
    EXPECT_THROW(worker.scheme->restore(fresh), std::logic_error);
    EXPECT_THROW(worker.scheme->copy_for_evaluation(copy, statistics), std::logic_error);

    worker.scheme->flush();
    EXPECT_NO_THROW((void)worker.scheme->save());
    EXPECT_THROW(worker.scheme->restore(fresh), std::logic_error);
  });
}

TEST(CyclicStateTest, RefusesTheStateOfAnotherWorkerAndKeepsItsOwn) {
  rondo::test::World{2}.run([](transport::World& world) {
    CyclicWorker worker(world, by_epochs);
    worker.compute_until_parked();
    const std::vector<std::byte> before = worker.scheme->save();
    std::vector<std::byte> swapped = before;
    // The rank lies behind the name, the version and the counters.
    swapped[sizeof(std::uint64_t) + 6 + sizeof(std::uint32_t) + sizeof(SchemeCounters)] ^=
        std::byte{1};

    EXPECT_THROW(worker.scheme->restore(swapped), std::invalid_argument);
    EXPECT_THROW(worker.scheme->restore(std::span(before).first(before.size() - 1)),
                 std::invalid_argument);

    EXPECT_EQ(worker.scheme->save(), before);
  });
}

}  // namespace
}  // namespace rondo::sync::cyclic_failure_test

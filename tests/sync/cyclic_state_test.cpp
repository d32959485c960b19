// A run that is saved while it is parked, and restored, goes on with the same bits.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include "support/world.hpp"
#include "sync/cyclic_worker.hpp"

namespace rondo::sync::cyclic_state_test {
namespace {

using rondo::test::Backend;
using test::CyclicWorker;

// Fixed delay: with it, arrivals do not depend on the clock. Of means, what is in a push decides
// how it is scaled.
const CyclicOptions fixed_delay{
    .delay = Delay::fixed, .scaling = PushScaling::mean, .epoch_samples = 18};

class CyclicStateTest : public testing::TestWithParam<Backend> {
 protected:
  [[nodiscard]] static rondo::test::World world() { return {GetParam(), 4}; }
};

TEST_P(CyclicStateTest, ARestoredRunGoesOnWithTheSameBits) {
  world().run([](transport::World& world) {
    CyclicWorker worker(world, fixed_delay);
    worker.compute_until_parked();
    CyclicWorker other(world, fixed_delay);

    other.done = worker.done;
    std::ranges::copy(worker.arrays.parameters, other.arrays.parameters.begin());
    other.scheme->restore(worker.scheme->save());
    EXPECT_EQ(other.scheme->save(), worker.scheme->save());
    EXPECT_TRUE(other.scheme->pace()->parked);
    worker.compute_until_parked();
    other.compute_until_parked();

    EXPECT_EQ(other.parameters(), worker.parameters());
    EXPECT_EQ(other.scheme->save(), worker.scheme->save());
    worker.scheme->flush();
    other.scheme->flush();
    EXPECT_EQ(other.parameters(), worker.parameters());
  });
}

TEST_P(CyclicStateTest, AStateFromBeforeTheFirstStepIsOneToo) {
  world().run([](transport::World& world) {
    CyclicWorker worker(world, fixed_delay);
    CyclicWorker other(world, fixed_delay);

    other.scheme->restore(worker.scheme->save());
    worker.compute_until_parked();
    other.compute_until_parked();

    EXPECT_EQ(other.parameters(), worker.parameters());
    EXPECT_EQ(other.scheme->save(), worker.scheme->save());
  });
}

TEST_P(CyclicStateTest, ARestoredRunEvaluatesTheSameModel) {
  world().run([](transport::World& world) {
    CyclicWorker worker(world, fixed_delay);
    worker.compute_until_parked();
    CyclicWorker other(world, fixed_delay);
    std::vector<float> copy(8);
    std::vector<float> others(8);
    std::vector<float> statistics(1);

    other.scheme->restore(worker.scheme->save());
    worker.scheme->copy_for_evaluation(copy, statistics);
    other.scheme->copy_for_evaluation(others, statistics);

    EXPECT_EQ(others, copy);
  });
}

TEST_P(CyclicStateTest, AnEvaluationCopyLeavesTheStateAsItWas) {
  world().run([](transport::World& world) {
    CyclicWorker worker(world, fixed_delay);
    worker.compute_until_parked();
    const std::vector<float> before = worker.parameters();
    std::vector<float> copy(8);
    std::vector<float> statistics(1);

    worker.scheme->copy_for_evaluation(copy, statistics);
    const std::vector<std::byte> state = worker.scheme->save();
    worker.scheme->copy_for_evaluation(copy, statistics);

    EXPECT_EQ(worker.parameters(), before);
    EXPECT_EQ(worker.scheme->save().size(), state.size());
    EXPECT_EQ(worker.scheme->counters().evaluation_reductions, 2U);
  });
}

// What is parked with is pushed at the rate of the step that it came from.
TEST_P(CyclicStateTest, ARestoredRunMayBeFlushedAtOnce) {
  world().run([](transport::World& world) {
    CyclicWorker worker(world, fixed_delay);
    worker.compute_until_parked();
    CyclicWorker other(world, fixed_delay);

    other.scheme->restore(worker.scheme->save());
    worker.scheme->flush();
    other.scheme->flush();

    EXPECT_EQ(other.parameters(), worker.parameters());
    EXPECT_EQ(other.scheme->save(), worker.scheme->save());
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, CyclicStateTest,
                         testing::Values(Backend::shm, Backend::hierarchy, Backend::shm_nodes));

TEST(CyclicStateRefusalTest, TheTokenMustBeAtRest) {
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

TEST(CyclicStateRefusalTest, RefusesTheStateOfAnotherWorkerAndKeepsItsOwn) {
  rondo::test::World{2}.run([](transport::World& world) {
    CyclicWorker worker(world, fixed_delay);
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
}  // namespace rondo::sync::cyclic_state_test

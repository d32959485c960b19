// Averages that overlap with the local steps after them: what they compute, when, and what they
// send.

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/k_step.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "support/error_text.hpp"
#include "support/world.hpp"
#include "sync/arrays.hpp"

namespace rondo::sync::overlap_test {
namespace {

using rondo::test::RanksTest;
using rondo::test::World;
using test::Arrays;
using test::small_gradient;
using test::step_of;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::size_t size = 40;

class OverlapTest : public RanksTest {};

/// Where gradients do not depend on the parameters, it does not matter when an average is applied:
/// after a flush blocking and overlapped ones agree, for all overlaps and momenta.
TEST_P(OverlapTest, CountsEveryLocalStepOnce) {
  World{ranks()}.run([](transport::World& world) {
    for (const float mu : {0.0F, 0.5F}) {
      std::vector<float> blocking;
      for (const int overlap : {0, 1, 3, 4, 9}) {
        Arrays arrays(world, {size});
        const auto scheme =
            make_k_step(arrays.replica(), make_sgd(size, {.momentum = 0.0F}),
                        {.period = 4, .momentum = {.mu = mu}, .overlap_steps = overlap});
        for (int index = 0; index < 14; ++index) {
          test::iterate(*scheme, arrays, step_of(world, index), [&](std::size_t i, float) {
            return small_gradient(world.rank(), index, i);
          });
        }
        scheme->flush();
        const std::vector<float> left(arrays.parameters.begin(), arrays.parameters.end());
        if (overlap == 0) blocking = left;
        EXPECT_EQ(left, blocking) << overlap << " steps, momentum " << mu;
      }
    }
  });
}

/// Rank r goes r+1 units in each step; a round has 3 steps.
TEST_P(OverlapTest, GoesOnFromItsOwnParametersUntilTheAverageIsApplied) {
  World{ranks()}.run([](transport::World& world) {
    Arrays arrays(world, {1});
    const auto scheme = make_k_step(arrays.replica(), make_sgd(1, {.momentum = 0.0F}),
                                    {.period = 3, .overlap_steps = 2});
    const float own = static_cast<float>(world.rank() + 1);
    const float mean = static_cast<float>(world.size() + 1) / 2.0F;
    std::vector<float> seen;
    for (int index = 0; index < 6; ++index) {
      test::iterate(*scheme, arrays, step_of(world, index),
                    [&](std::size_t, float) { return -8.0F * own; });
      seen.push_back(arrays.parameters[0]);
    }
    const float applied = world.size() == 1 ? 3 * own : 3 * mean;
    EXPECT_THAT(seen,
                ElementsAre(own, 2 * own, 3 * own, 4 * own, applied + 2 * own, applied + 3 * own));
    scheme->flush();
    EXPECT_EQ(arrays.parameters[0], world.size() == 1 ? 6 * own : 6 * mean);
  });
}

TEST_P(OverlapTest, SendsWhatBlockingAveragesSend) {
  World{ranks()}.run([](transport::World& world) {
    std::vector<std::int64_t> rounds;
    Arrays arrays(world, {size}, 3);
    const auto scheme =
        make_k_step(arrays.replica(), make_sgd(size, {}),
                    {.period = 4,
                     .on_round = [&](const Round& round) { rounds.push_back(round.index); },
                     .overlap_steps = 2});
    for (int index = 0; index < 13; ++index) {
      test::iterate(*scheme, arrays, step_of(world, index),
                    [](std::size_t, float) { return 1.0F; });
    }
    const std::uint64_t met = world.size() == 1 ? 0 : 3;
    EXPECT_EQ(scheme->counters().global_reductions, met);
    EXPECT_EQ(scheme->counters().collectives, met);
    EXPECT_EQ(scheme->counters().global_bytes, met * 4 * (size + 3 + 1));
    // The third is posted, and not applied yet.
    EXPECT_EQ(rounds.size(), world.size() == 1 ? 3U : 2U);
    scheme->flush();
    EXPECT_THAT(rounds, ElementsAre(0, 1, 2, 3));
  });
}

TEST_P(OverlapTest, EvaluatesWhatFlushLeavesAtEveryStep) {
  World{ranks()}.run([](transport::World& world) {
    test::expect_evaluation_as_flush(world, {size}, [](const Replica& replica) {
      return make_k_step(replica, make_sgd(size, {}),
                         {.period = 4, .momentum = {.mu = 0.5F}, .overlap_steps = 2});
    });
  });
}

TEST_P(OverlapTest, RefusesStatesOfAnotherKind) {
  World{ranks()}.run([](transport::World& world) {
    Arrays arrays(world, {size});
    const auto blocking = make_k_step(arrays.replica(), make_sgd(size, {}), {.period = 4});
    const auto overlapped =
        make_k_step(arrays.replica(), make_sgd(size, {}), {.period = 4, .overlap_steps = 2});
    if (world.size() == 1) return overlapped->restore(blocking->save());  // nothing overlaps
    EXPECT_THAT(rondo::test::error_text<std::invalid_argument>(
                    [&] { overlapped->restore(blocking->save()); }),
                HasSubstr("another choice of overlap_steps"));
    EXPECT_THAT(rondo::test::error_text<std::invalid_argument>(
                    [&] { blocking->restore(overlapped->save()); }),
                HasSubstr("another choice of overlap_steps"));
  });
}

INSTANTIATE_TEST_SUITE_P(Threads, OverlapTest, testing::Values(1, 2, 4));

}  // namespace
}  // namespace rondo::sync::overlap_test

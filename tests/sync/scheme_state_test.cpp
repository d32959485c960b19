// The promises of every scheme about its state: a run goes on from it with the same bits, an
// evaluation leaves it as it was, and the end of training leaves the same on all ranks. In one node
// and across several.

#include <cstddef>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/update_scheme.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "support/sanitized.hpp"
#include "support/world.hpp"
#include "sync/schemes_under_test.hpp"

namespace rondo::sync::scheme_state_test {
namespace {

using rondo::test::Backend;
using rondo::test::World;
using test::schemes_under_test;
using test::TrainingRun;
using test::UnderTest;
using testing::Combine;
using testing::ElementsAreArray;
using testing::Values;
using testing::ValuesIn;

std::vector<float> broadcast(transport::World& world, std::span<const float> values) {
  std::vector<float> first(values.begin(), values.end());
  world.communicator().broadcast(std::span(first), 0).wait();
  return first;
}

class SchemeStateTest : public testing::TestWithParam<std::tuple<Backend, UnderTest>> {
 protected:
  static const UnderTest& tested() { return std::get<1>(GetParam()); }
  static World world() { return {std::get<0>(GetParam()), 4}; }
};

TEST_P(SchemeStateTest, ARestoredRunGoesOnWithTheSameBits) {
  const std::vector<int> steps =
      rondo::test::sanitized ? std::vector{0, 5} : std::vector{0, 1, 3, 5, 9};
  for (const int before : steps) {
    world().run([before](transport::World& world) {
      TrainingRun run(tested(), world);
      run.train(before);
      TrainingRun other(tested(), world);

      other.go_on_from(run);
      EXPECT_EQ(other.scheme->save(), run.scheme->save());
      run.train(11);
      other.train(11);

      other.expect_as(run);
      EXPECT_EQ(other.scheme->save(), run.scheme->save());
    });
  }
}

TEST_P(SchemeStateTest, ARestoredRunIsEvaluatedAndFlushedAlike) {
  world().run([](transport::World& world) {
    TrainingRun run(tested(), world);
    run.train(5);
    TrainingRun other(tested(), world);
    std::vector<float> parameters(140);
    std::vector<float> others(140);
    std::vector<float> statistics(4);

    other.go_on_from(run);
    run.scheme->copy_for_evaluation(parameters, statistics);
    other.scheme->copy_for_evaluation(others, statistics);
    EXPECT_EQ(others, parameters);
    run.scheme->flush();
    other.scheme->flush();

    other.expect_as(run);
    EXPECT_EQ(other.scheme->save(), run.scheme->save());
  });
}

TEST_P(SchemeStateTest, AnEvaluationCopyLeavesTrainingAsItWas) {
  world().run([](transport::World& world) {
    TrainingRun run(tested(), world);
    TrainingRun evaluated(tested(), world);
    std::vector<float> parameters(140);
    std::vector<float> statistics(4);

    for (int i = 0; i < 14; ++i) {
      evaluated.scheme->copy_for_evaluation(parameters, statistics);
      run.train(1);
      evaluated.train(1);
    }

    evaluated.expect_as(run);
    EXPECT_GE(evaluated.scheme->counters().evaluation_reductions, 14U);
    EXPECT_EQ(evaluated.scheme->counters().collectives, run.scheme->counters().collectives);
    EXPECT_EQ(evaluated.scheme->counters().global_bytes, run.scheme->counters().global_bytes);
    const auto replicated = run.scheme->replicated();
    for (std::size_t i = 0; i < replicated.size(); ++i) {
      EXPECT_THAT(evaluated.scheme->replicated()[i], ElementsAreArray(replicated[i]));
    }
  });
}

/// Trains, flushes, trains and flushes again; each time a copy for evaluation holds before the
/// flush what this leaves, on all ranks, and nothing is pending any more. Workers that push
/// evaluate the store as it is.
void expect_flushes(transport::World& world, TrainingRun& run, int first, int second,
                    bool averages) {
  const Exchange exchange = run.scheme->description().exchange;
  for (const int steps : {first, second}) {
    std::vector<float> copy(140);
    std::vector<float> statistics(4);
    run.train(steps);

    run.scheme->copy_for_evaluation(copy, statistics);
    run.scheme->flush();
    const std::vector<std::byte> flushed = run.scheme->save();
    EXPECT_THAT(run.arrays.parameters, ElementsAreArray(broadcast(world, run.arrays.parameters)));
    if (exchange != Exchange::pushes) {
      EXPECT_THAT(run.arrays.parameters, ElementsAreArray(copy));
    }
    if (averages) {
      EXPECT_EQ(run.arrays.statistics, statistics);
    }
    run.scheme->flush();
    EXPECT_EQ(run.scheme->save(), flushed);
    if (exchange == Exchange::pushes) return;  // a flush ends their training
  }
}

TEST_P(SchemeStateTest, FlushLeavesOnAllRanksWhatIsEvaluatedAndNothingPending) {
  constexpr int longest = rondo::test::sanitized ? 3 : 5;
  world().run([](transport::World& world) {
    for (int steps = 1; steps <= longest; ++steps) {
      SCOPED_TRACE(steps);
      TrainingRun run(tested(), world);
      const bool averages =
          run.scheme->description().exchange == Exchange::parameters && tested().name != "WarmUp";
      expect_flushes(world, run, steps, longest + 1 - steps, averages);
    }
  });
}

TEST_P(SchemeStateTest, DoesNotDependOnTheOrderInWhichLayersBecomeFinal) {
  world().run([](transport::World& world) {
    TrainingRun run(tested(), world);
    TrainingRun rotated(tested(), world);
    rotated.rotation = static_cast<std::size_t>(world.rank() % 3);

    run.train(9);
    rotated.train(9);

    rotated.expect_as(run);
  });
}

TEST_P(SchemeStateTest, ReplicatedIsTheSameOnAllRanks) {
  world().run([](transport::World& world) {
    TrainingRun run(tested(), world);
    for (int i = 0; i < 9; ++i) {
      for (const std::span<const float> mine : run.scheme->replicated()) {
        EXPECT_THAT(mine, ElementsAreArray(broadcast(world, mine)));
      }
      run.train(1);
    }
  });
}

std::string name_of(const testing::TestParamInfo<SchemeStateTest::ParamType>& info) {
  return std::get<1>(info.param).name + rondo::test::name_of(std::get<0>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Schemes, SchemeStateTest,
                         Combine(Values(Backend::shm, Backend::hierarchy, Backend::shm_nodes),
                                 ValuesIn(schemes_under_test())),
                         name_of);

}  // namespace
}  // namespace rondo::sync::scheme_state_test

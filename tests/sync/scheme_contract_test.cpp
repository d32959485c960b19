// Every scheme's promises to its callers: it refuses impossible calls and is then unchanged, it
// communicates nothing alone, and allocates nothing in an iteration. Its state: scheme_state_test.

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/update_scheme.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>
#include <rondo/transport/world.hpp>

#include "support/allocations.hpp"
#include "support/error_text.hpp"
#include "support/sanitized.hpp"
#include "support/world.hpp"
#include "sync/arrays.hpp"
#include "sync/schemes_under_test.hpp"

namespace rondo::sync::scheme_contract_test {
namespace {

using rondo::test::Backend;
using rondo::test::World;
using test::Arrays;
using test::Scheme;
using test::schemes_under_test;
using test::SharedOptimizer;
using test::TrainingRun;
using test::UnderTest;
using testing::HasSubstr;
using testing::ValuesIn;
using transport::Communicator;

/// An optimizer of a user's own: it reads the number of the update, and every scheme takes it.
class CountingOptimizer final : public Optimizer {
 public:
  explicit CountingOptimizer(std::size_t size) : adam_(make_adam(size)) {}

  void update(std::size_t offset, std::span<float> parameters, std::span<const float> gradients,
              const Update& update) override {
    adam_->update(offset, parameters, gradients, update);
  }
  [[nodiscard]] std::size_t size() const noexcept override { return adam_->size(); }
  [[nodiscard]] bool ignores_scale() const noexcept override { return false; }
  [[nodiscard]] std::span<float> state() noexcept override { return adam_->state(); }
  void keep_state_in(std::span<float> memory) override { adam_->keep_state_in(memory); }
  [[nodiscard]] std::vector<std::byte> save() const override { return adam_->save(); }
  void restore(std::span<const std::byte> state) override { adam_->restore(state); }

 private:
  std::unique_ptr<Optimizer> adam_;
};

class SchemeContractTest : public testing::TestWithParam<UnderTest> {
 protected:
  /// Runs `body` on one rank, whose next step is number 3.
  static void run_alone(const std::function<void(TrainingRun&)>& body) {
    World{1}.run([&](transport::World& world) {
      TrainingRun run(GetParam(), world);
      run.done = 3;
      body(run);
    });
  }

  /// The reason why a scheme is refused after `change`.
  static std::string refusal(const std::function<void(Replica&, SharedOptimizer&)>& change) {
    std::string reason = "accepted";
    World{1}.run([&](transport::World& world) {
      Communicator alone = world.communicator().split(0);
      Arrays arrays(world, {5, 6});
      Replica replica = arrays.replica();
      SharedOptimizer optimizer = GetParam().make_optimizer(11);
      change(replica, optimizer);
      try {
        static_cast<void>(GetParam().make({replica, optimizer, alone}));
      } catch (const std::invalid_argument& error) {
        reason = error.what();
      }
    });
    return reason;
  }

  static std::string refusal(const std::function<void(Replica&)>& change) {
    return refusal([&](Replica& replica, SharedOptimizer&) { change(replica); });
  }
};

TEST_P(SchemeContractTest, DescribesItself) {
  run_alone([](TrainingRun& run) {
    const SchemeDescription& description = run.scheme->description();

    EXPECT_FALSE(description.name.empty());
    EXPECT_EQ(run.scheme->pace().has_value(), description.own_pace);
    if (GetParam().name != "WarmUp") {
      EXPECT_EQ(run.scheme->wants_inner_sums(), description.steps_alone());
    }
    for (const SchemeDescription& known : schemes()) {
      EXPECT_EQ(&describe_scheme(known.name), &known);
    }
  });
}

// As a run that goes on, and whose momenta could not be kept.
TEST_P(SchemeContractTest, CountsUpdatesFromWhereTheOptimizersStateBegan) {
  World{1}.run([](transport::World& world) {
    UnderTest tested = GetParam();
    tested.make_optimizer = [](std::size_t size) -> std::unique_ptr<Optimizer> {
      return std::make_unique<CountingOptimizer>(size);
    };
    TrainingRun begun(tested, world);
    TrainingRun resumed(tested, world);
    resumed.optimizer_start = 5000;
    begun.train(6);
    resumed.train(6);

    resumed.expect_as(begun);
  });
}

TEST_P(SchemeContractTest, RefusesCallsOutsideAnIterationAndOthersWithinIt) {
  run_alone([](TrainingRun& run) {
    const std::vector<std::byte> state = run.scheme->save();
    std::vector<float> parameters(140);
    std::vector<float> statistics(4);
    EXPECT_THROW(run.scheme->gradients_final(0), std::logic_error);
    EXPECT_THROW(run.scheme->finish(), std::logic_error);

    run.scheme->begin(run.step());
    run.scheme->gradients_final(1);

    EXPECT_THAT(
        rondo::test::error_text<std::invalid_argument>([&] { run.scheme->gradients_final(1); }),
        HasSubstr("layer layer1 is final for the second time in step 3"));
    EXPECT_THROW(run.scheme->gradients_final(3), std::invalid_argument);
    EXPECT_THAT(rondo::test::error_text<std::logic_error>([&] { run.scheme->finish(); }),
                HasSubstr("layer0"));
    EXPECT_THROW(run.scheme->begin(run.step()), std::logic_error);
    EXPECT_THROW(run.scheme->flush(), std::logic_error);
    EXPECT_THROW(static_cast<void>(run.scheme->save()), std::logic_error);
    EXPECT_THROW(run.scheme->restore(state), std::logic_error);
    EXPECT_THROW(run.scheme->copy_for_evaluation(parameters, statistics), std::logic_error);
  });
}

TEST_P(SchemeContractTest, RefusesAStepWithoutSamplesAndIsUnchanged) {
  run_alone([](TrainingRun& run) {
    const bool empty_shares = run.scheme->description().empty_shares;

    EXPECT_THROW(run.scheme->begin({.index = 0, .global_samples = 0}), std::invalid_argument);
    if (!empty_shares) {
      EXPECT_THROW(run.scheme->begin({.index = 0, .local_samples = 0, .global_samples = 2}),
                   std::invalid_argument);
    }
    EXPECT_NO_THROW(run.iterate());
  });
}

TEST_P(SchemeContractTest, RefusesAnEvaluationCopyOfAnotherSize) {
  run_alone([](TrainingRun& run) {
    std::vector<float> parameters(140);
    std::vector<float> statistics(4);

    EXPECT_THROW(run.scheme->copy_for_evaluation(std::span(parameters).first(139), statistics),
                 std::invalid_argument);
    EXPECT_THROW(run.scheme->copy_for_evaluation(parameters, std::span(statistics).first(3)),
                 std::invalid_argument);
  });
}

TEST_P(SchemeContractTest, RefusesReplicasThatDoNotFitTogether) {
  const std::vector<std::pair<void (*)(Replica&), const char*>> changes = {
      {[](Replica&) {}, "accepted"},
      {[](Replica& r) { r.world = nullptr; }, "no world"},
      {[](Replica& r) { r.gradients = r.gradients.first(10); }, "11 parameters, but 10 gradients"},
      {[](Replica& r) { r.layers[1].offset = 6; }, "begins at 6, the one before it ends at 5"},
      {[](Replica& r) { r.layers[1].groups.slice = nullptr; }, "layer1 has no slice group"},
      {[](Replica& r) { r.layers[1].size = 5; }, "layers cover 10 of 11 parameters"},
      {[](Replica& r) { r.slices.counted = {{10, 2}}; }, "it counts 2 elements from 10 on"}};
  for (const auto& [change, said] : changes) EXPECT_THAT(refusal(change), HasSubstr(said));
}

TEST_P(SchemeContractTest, RefusesLayersWithoutACommonOuterGroupWhereItIsNeeded) {
  bool steps_alone = false;
  run_alone([&](TrainingRun& run) { steps_alone = run.scheme->description().steps_alone(); });
  const auto without = refusal([](Replica& r) { r.layers[0].groups.outer = nullptr; });
  const auto other = refusal([](Replica& r) {
    Communicator* const world = &r.world->communicator();
    static thread_local std::unique_ptr<Communicator> another;
    another = std::make_unique<Communicator>(world->split(0));
    r.layers[1].groups.outer = another.get();
  });

  if (!steps_alone) {
    EXPECT_EQ(without, "accepted");
    EXPECT_EQ(other, "accepted");
    return;
  }
  EXPECT_THAT(without, HasSubstr("layer layer0 has no outer group"));
  EXPECT_THAT(other, HasSubstr("layer layer1 has another outer group than layer layer0"));
}

TEST_P(SchemeContractTest, RefusesOptimizersThatDoNotFit) {
  bool ignores_scale = false;
  run_alone([&](TrainingRun& run) { ignores_scale = run.scheme->description().ignores_scale; });

  EXPECT_THAT(refusal([](Replica&, SharedOptimizer& o) { o = nullptr; }),
              HasSubstr(": no optimizer was given"));
  EXPECT_THAT(refusal([](Replica&, SharedOptimizer& o) { o = make_sgd(6, {}); }),
              HasSubstr(": the optimizer is for 6 parameters, the replica has 11"));
  EXPECT_THAT(refusal([](Replica&, SharedOptimizer& o) { o = make_adam(11); }),
              ignores_scale ? HasSubstr("accepted") : HasSubstr("ignores the scale of gradients"));
}

TEST_P(SchemeContractTest, RefusesTheStateOfAnotherModelAndKeepsItsOwn) {
  World{1}.run([](transport::World& world) {
    TrainingRun run(GetParam(), world);
    TrainingRun longer(GetParam(), world, {50, 30, 61});
    run.train(6);
    longer.train(6);
    const std::vector<std::byte> before = run.scheme->save();
    std::vector<std::byte> too_long = before;
    too_long.push_back(std::byte{0});

    EXPECT_THROW(run.scheme->restore(longer.scheme->save()), std::invalid_argument);
    EXPECT_THROW(run.scheme->restore(make_sgd(140, {})->save()), std::invalid_argument);
    EXPECT_THROW(run.scheme->restore(std::span(before).first(before.size() - 1)),
                 std::invalid_argument);
    EXPECT_THROW(run.scheme->restore(too_long), std::invalid_argument);

    EXPECT_EQ(run.scheme->save(), before);
  });
}

TEST_P(SchemeContractTest, WithOneRankNothingIsCommunicated) {
  run_alone([](TrainingRun& run) {
    std::vector<float> parameters(140);
    std::vector<float> statistics(4);

    run.scheme->flush();
    run.train(9);
    run.scheme->copy_for_evaluation(parameters, statistics);
    run.scheme->flush();

    const SchemeCounters counters = run.scheme->counters();
    EXPECT_EQ(counters.global_reductions + counters.local_reductions, 0U);
    EXPECT_EQ(counters.collectives + counters.evaluation_reductions, 0U);
    EXPECT_EQ(counters.global_bytes + counters.local_bytes, 0U);
    EXPECT_EQ(counters.lazy_reductions, 0U);
  });
}

TEST_P(SchemeContractTest, ALostRankIsAnErrorAndTheSchemeCanBeDestroyed) {
  World{3}.run_without(2, [](transport::World& world) {
    Arrays arrays(world, {50, 30, 60}, 4);
    const auto train = [&] {
      const Scheme scheme =
          GetParam().make({arrays.replica(), GetParam().make_optimizer(140), world.communicator()});
      for (int step = 0; step < 20; ++step) {
        test::iterate(*scheme, arrays, test::step_of(world, step),
                      [](std::size_t, float w) { return w + 1.0F; });
      }
    };

    EXPECT_THROW(train(), transport::Error);
  });
}

void expect_no_allocations(const UnderTest& tested, Backend backend) {
  World{backend, 4}.run([&](transport::World& world) {
    const std::size_t longest = rondo::test::sanitized ? 20'000 : 100'000;
    TrainingRun run(tested, world, {5000, 20, 300, longest});
    run.train(30);  // pools fill: of two communicators in each of the orders that there are

    const std::size_t before = rondo::test::allocations_of_this_thread();
    run.train(40);

    EXPECT_EQ(rondo::test::allocations_of_this_thread() - before, 0U);
  });
}

TEST_P(SchemeContractTest, AnIterationAllocatesNothing) {
  expect_no_allocations(GetParam(), Backend::shm);
}

// For other schemes, the transport's pools between nodes grow with the messages in flight.
TEST(CyclicContractTest, AnIterationBetweenNodesAllocatesNothing) {
  const auto cyclic = std::ranges::find(schemes_under_test(), "Cyclic", &UnderTest::name);
  expect_no_allocations(*cyclic, Backend::shm_nodes);
}

INSTANTIATE_TEST_SUITE_P(Schemes, SchemeContractTest, ValuesIn(schemes_under_test()),
                         [](const auto& tested) { return tested.param.name; });

TEST(AllocationCounterTest, SeesAllocationsOfThisThread) {
  const std::size_t before = rondo::test::allocations_of_this_thread();

  const auto sgd = make_sgd(10, {});

  EXPECT_GT(rondo::test::allocations_of_this_thread(), before);
}

TEST(SchemeDescriptionTest, NamesThoseThatThereAre) {
  EXPECT_THAT(rondo::test::error_text<std::invalid_argument>(
                  [] { static_cast<void>(describe_scheme("lary")); }),
              HasSubstr("no scheme is called lary; there are: synchronous, sharded, lazy, k_step"));
}

}  // namespace
}  // namespace rondo::sync::scheme_contract_test

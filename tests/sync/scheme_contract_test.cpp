// What every scheme promises: those of the library, a warm-up before one of them, and a scheme from
// outside (periodic_average.hpp). A new scheme is one entry in `schemes_under_test`.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/cyclic.hpp>
#include <rondo/sync/hierarchical.hpp>
#include <rondo/sync/k_step.hpp>
#include <rondo/sync/lazy.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/sharded.hpp>
#include <rondo/sync/synchronous.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/element.hpp>
#include <rondo/transport/error.hpp>
#include <rondo/transport/world.hpp>

#include "support/allocations.hpp"
#include "support/world.hpp"
#include "sync/arrays.hpp"
#include "sync/periodic_average.hpp"

namespace rondo::sync::scheme_contract_test {
namespace {

using rondo::test::Backend;
using rondo::test::World;
using test::Arrays;
using testing::Combine;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::ThrowsMessage;
using testing::Values;
using testing::ValuesIn;
using transport::Communicator;

using Scheme = std::unique_ptr<UpdateScheme>;
using SharedOptimizer = std::shared_ptr<Optimizer>;

struct UnderTest {
  std::string name;
  /// `pair` are two of the ranks, for schemes with levels.
  Scheme (*make)(const Replica& replica, SharedOptimizer optimizer, Communicator& pair);
  std::unique_ptr<Optimizer> (*make_optimizer)(std::size_t size) = [](std::size_t size) {
    return make_sgd(size, {.momentum = 0.5F, .weight_decay = 0.25F});
  };

  friend void PrintTo(const UnderTest& tested, std::ostream* stream) { *stream << tested.name; }
};

LazyOptions lazy_options(const Replica& replica) {
  LazyOptions options{.lazy_layers = 2, .probes = {}, .max_interval = 5};
  for (std::size_t i = 0; i < 2; ++i) {
    options.probes.push_back({replica.layers[i].offset, replica.layers[i].size - 1});
  }
  return options;
}

/// Rounds of 6 steps, averages of pairs after 2 and 4 of them.
HierarchicalOptions levels(Communicator& pair, MomentumKind kind, LocalState local_state) {
  return {.period = 6,
          .levels = {{2, &pair}},
          .momentum = {.kind = kind, .mu = 0.7F},
          .local_state = local_state,
          .clip_norm = 2.0};
}

std::unique_ptr<Optimizer> adam(std::size_t size) { return make_adam(size); }

const std::vector<UnderTest> schemes_under_test{
    {"Synchronous",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator&) {
       return make_synchronous(replica, optimizer, {1024, 512});
     }},
    {"SynchronousClipped",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator&) {
       return make_synchronous(replica, optimizer, {.clip_norm = 2.0});
     }},
    {"SynchronousBf16",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator&) {
       return make_synchronous(replica, optimizer,
                               {.bucket_bytes = 1024,
                                .last_bucket_bytes = 512,
                                .clip_norm = 2.0,
                                .gradient_type = transport::ElementType::bf16});
     }},
    {"Sharded", [](const Replica& replica, SharedOptimizer optimizer,
                   Communicator&) { return make_sharded(replica, optimizer, {1024, 512}); }},
    {"ShardedClippedBf16",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator&) {
       return make_sharded(replica, optimizer,
                           {.bucket_bytes = 1024,
                            .last_bucket_bytes = 512,
                            .clip_norm = 2.0,
                            .gradient_type = transport::ElementType::bf16});
     },
     adam},
    {"LazyBf16",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator&) {
       LazyOptions options = lazy_options(replica);
       options.gradient_type = transport::ElementType::bf16;
       return make_lazy(replica, optimizer, options);
     }},
    {"Lazy", [](const Replica& replica, SharedOptimizer optimizer,
                Communicator&) { return make_lazy(replica, optimizer, lazy_options(replica)); }},
    {"KStep", [](const Replica& replica, SharedOptimizer optimizer,
                 Communicator&) { return make_k_step(replica, optimizer, {.period = 4}); }},
    {"KStepBf16",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator&) {
       return make_k_step(replica, optimizer,
                          {.period = 4, .average_type = transport::ElementType::bf16});
     }},
    {"HierarchicalBf16Overlapped",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator& pair) {
       HierarchicalOptions options = levels(pair, MomentumKind::classical, LocalState::keep);
       options.overlap_steps = 1;
       options.average_type = transport::ElementType::bf16;
       return make_hierarchical(replica, optimizer, options);
     }},
    {"KStepAdaptive",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator&) {
       return make_k_step(replica, optimizer,
                          {.period = 6, .period_of = adaptive(), .sums_losses = true});
     }},
    {"HierarchicalChangingPeriod",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator& pair) {
       HierarchicalOptions options = levels(pair, MomentumKind::slowmo, LocalState::keep);
       options.period_of = [](const RoundStart& round) { return 3 + round.index % 3; };
       return make_hierarchical(replica, optimizer, options);
     }},
    {"KStepOverlapped",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator&) {
       return make_k_step(replica, optimizer,
                          {.period = 4,
                           .momentum = {.kind = MomentumKind::slowmo, .mu = 0.7F},
                           .overlap_steps = 2});
     }},
    {"HierarchicalOverlapped",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator& pair) {
       HierarchicalOptions options = levels(pair, MomentumKind::nesterov, LocalState::keep);
       options.overlap_steps = 9;  // until the next average
       return make_hierarchical(replica, optimizer, options);
     },
     adam},
    {"KStepInFragments",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator&) {
       return make_k_step(replica, optimizer,
                          {.period = 4,
                           .momentum = {.kind = MomentumKind::slowmo, .mu = 0.7F},
                           .overlap_steps = 1,
                           .fragments = 2});
     },
     adam},
    {"HierarchicalInFragmentsBf16",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator& pair) {
       HierarchicalOptions options = levels(pair, MomentumKind::nesterov, LocalState::keep);
       options.fragments = 2;
       options.average_type = transport::ElementType::bf16;
       return make_hierarchical(replica, optimizer, options);
     }},
    {"KStepOuterAdam",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator&) {
       return make_k_step(replica, optimizer,
                          {.period = 4,
                           .outer_optimizer = make_adam(replica.parameters.size()),
                           .outer_learning_rate = 0.01,
                           .overlap_steps = 1});
     }},
    {"HierarchicalClassical",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator& pair) {
       return make_hierarchical(replica, optimizer,
                                levels(pair, MomentumKind::classical, LocalState::keep));
     }},
    {"HierarchicalNesterov",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator& pair) {
       return make_hierarchical(replica, optimizer,
                                levels(pair, MomentumKind::nesterov, LocalState::keep));
     },
     adam},
    {"HierarchicalSlowmo",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator& pair) {
       return make_hierarchical(replica, optimizer,
                                levels(pair, MomentumKind::slowmo, LocalState::average));
     },
     adam},
    {"HierarchicalDiloco",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator& pair) {
       return make_hierarchical(replica, optimizer,
                                levels(pair, MomentumKind::diloco, LocalState::reset));
     },
     [](std::size_t size) { return make_adamw(size, {.weight_decay = 0.1}); }},
    // Fixed delay: with it, arrivals do not depend on the clock. Of means, what is in a push
    // decides how it is scaled.
    {"Cyclic",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator&) {
       return make_cyclic(
           replica, optimizer,
           {.delay = Delay::fixed, .scaling = PushScaling::mean, .epoch_samples = 18});
     }},
    {"WarmUp",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator&) {
       return make_warm_up(make_synchronous(replica, optimizer),
                           make_k_step(replica, optimizer, {.period = 4}), 3);
     }},
    {"PeriodicAverage",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator&) -> Scheme {
       return std::make_unique<test::PeriodicAverage>(replica, optimizer, 4);
     }},
};

/// One rank that trains by gradients that the test makes up.
class TrainingRun {
 public:
  explicit TrainingRun(const UnderTest& tested, transport::World& world,
                       const std::vector<std::size_t>& sizes = {50, 30, 60})
      : world_(world),
        pair_(world.communicator().split(world.rank() / 2)),
        arrays(world, sizes, 4) {
    std::ranges::fill(arrays.parameters, 1.0F);
    scheme = tested.make(arrays.replica(), tested.make_optimizer(arrays.parameters.size()), pair_);
  }

  [[nodiscard]] Step step() const {
    return {.index = done,
            .local_samples = 1,
            .global_samples = static_cast<std::size_t>(world_.size()),
            .learning_rate = 0.1 / (1 + done)};
  }

  /// One iteration. Gradients depend on the parameters, the rank and the step.
  void iterate() {
    const auto rank = static_cast<float>(world_.rank());
    for (float& statistic : arrays.statistics) statistic = 0.9F * statistic + rank;
    test::iterate(*scheme, arrays, step(), [&](std::size_t i, float w) {
      if (i == 0) scheme->add_loss(8.0 / (1 + done) + rank);
      return 0.3F * w + 0.7F * static_cast<float>(done % 3) - rank + 0.01F * static_cast<float>(i);
    });
    ++done;
  }

  /// So many iterations, or of a scheme where ranks have a pace of their own, epochs.
  void train(int count) {
    for (int i = 0; i < count; ++i) {
      do {
        iterate();
      } while (scheme->pace() && !scheme->pace()->parked);
    }
    for (std::size_t layer = 0; layer < arrays.layers(); ++layer) scheme->make_ready(layer);
  }

  void go_on_from(const TrainingRun& other) {
    std::ranges::copy(other.arrays.parameters, arrays.parameters.begin());
    arrays.statistics = other.arrays.statistics;
    done = other.done;
    scheme->restore(other.scheme->save());
  }

  void expect_as(const TrainingRun& other) const {
    EXPECT_THAT(arrays.parameters, ElementsAreArray(other.arrays.parameters));
    EXPECT_EQ(arrays.statistics, other.arrays.statistics);
  }

 private:
  transport::World& world_;
  Communicator pair_;

 public:
  Arrays arrays;
  Scheme scheme;
  int done = 0;
};

std::vector<float> broadcast(transport::World& world, std::span<const float> values) {
  std::vector<float> first(values.begin(), values.end());
  world.communicator().broadcast(std::span(first), 0).wait();
  return first;
}

// States, evaluation and the end of training, in one node and across several.
class SchemeStateTest : public testing::TestWithParam<std::tuple<Backend, UnderTest>> {
 protected:
  static const UnderTest& tested() { return std::get<1>(GetParam()); }
  static World world() { return {std::get<0>(GetParam()), 4}; }
};

TEST_P(SchemeStateTest, ARestoredRunGoesOnWithTheSameBits) {
  for (const int before : {0, 1, 5, 9}) {
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

TEST_P(SchemeStateTest, FlushLeavesTheSameOnAllRanksAndNothingPending) {
  world().run([](transport::World& world) {
    TrainingRun run(tested(), world);
    run.train(9);
    const bool pushes = run.scheme->description().exchange == Exchange::pushes;
    std::vector<float> copy(140);
    std::vector<float> statistics(4);

    run.scheme->copy_for_evaluation(copy, statistics);
    run.scheme->flush();
    const std::vector<std::byte> flushed = run.scheme->save();
    EXPECT_THAT(run.arrays.parameters, ElementsAreArray(broadcast(world, run.arrays.parameters)));
    if (!pushes) {
      EXPECT_THAT(run.arrays.parameters, ElementsAreArray(copy));
    }
    run.scheme->flush();

    EXPECT_EQ(run.scheme->save(), flushed);
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
                                 ValuesIn(schemes_under_test)),
                         name_of);

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
        static_cast<void>(GetParam().make(replica, optimizer, alone));
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

TEST_P(SchemeContractTest, RefusesALayerThatIsFinalTwiceOrDoesNotExist) {
  run_alone([](TrainingRun& run) {
    run.scheme->begin(run.step());
    run.scheme->gradients_final(1);

    EXPECT_THAT([&] { run.scheme->gradients_final(1); },
                ThrowsMessage<std::invalid_argument>(
                    HasSubstr("layer layer1 is final for the second time in step 3")));
    EXPECT_THROW(run.scheme->gradients_final(3), std::invalid_argument);
  });
}

TEST_P(SchemeContractTest, RefusesToFinishBeforeAllLayersAreFinal) {
  run_alone([](TrainingRun& run) {
    run.scheme->begin(run.step());
    run.scheme->gradients_final(1);

    EXPECT_THAT([&] { run.scheme->finish(); },
                ThrowsMessage<std::logic_error>(HasSubstr("layer0")));
  });
}

TEST_P(SchemeContractTest, RefusesCallsOutsideAnIteration) {
  run_alone([](TrainingRun& run) {
    EXPECT_THROW(run.scheme->gradients_final(0), std::logic_error);
    EXPECT_THROW(run.scheme->finish(), std::logic_error);
  });
}

TEST_P(SchemeContractTest, RefusesCallsInTheMiddleOfAnIteration) {
  run_alone([](TrainingRun& run) {
    const std::vector<std::byte> state = run.scheme->save();
    run.scheme->begin(run.step());
    std::vector<float> parameters(140);
    std::vector<float> statistics(4);

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
  EXPECT_EQ(refusal([](Replica&) {}), "accepted");
  EXPECT_THAT(refusal([](Replica& r) { r.world = nullptr; }), HasSubstr("no world"));
  EXPECT_THAT(refusal([](Replica& r) { r.gradients = r.gradients.first(10); }),
              HasSubstr("11 parameters, but 10 gradients"));
  EXPECT_THAT(refusal([](Replica& r) { r.layers[1].offset = 6; }),
              HasSubstr("layer1 begins at 6, the one before it ends at 5"));
  EXPECT_THAT(refusal([](Replica& r) { r.layers[1].groups.slice = nullptr; }),
              HasSubstr("layer1 has no slice group"));
  EXPECT_THAT(refusal([](Replica& r) { r.layers[1].size = 5; }),
              HasSubstr("layers cover 10 of 11 parameters"));
  EXPECT_THAT(refusal([](Replica& r) { r.slices.counted = {{10, 2}}; }),
              HasSubstr("it counts 2 elements from 10 on"));
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
          GetParam().make(arrays.replica(), GetParam().make_optimizer(140), world.communicator());
      for (int step = 0; step < 20; ++step) {
        test::iterate(
            *scheme, arrays,
            {.index = step, .local_samples = 1, .global_samples = 3, .learning_rate = 0.1},
            [](std::size_t, float w) { return w + 1.0F; });
      }
    };

    EXPECT_THROW(train(), transport::Error);
  });
}

void expect_no_allocations(const UnderTest& tested, Backend backend) {
  World{backend, 4}.run([&](transport::World& world) {
    TrainingRun run(tested, world, {5000, 20, 300, 100'000});
    run.train(30);  // pools fill: of two communicators in each of the orders that there are

    const std::size_t before = rondo::test::allocations_of_this_thread();
    run.train(40);

    EXPECT_EQ(rondo::test::allocations_of_this_thread() - before, 0U);
  });
}

TEST_P(SchemeContractTest, AnIterationAllocatesNothing) {
  expect_no_allocations(GetParam(), Backend::shm);
}

// Of the others the transport's pools between nodes grow with what is on its way at the same time.
TEST(CyclicContractTest, AnIterationBetweenNodesAllocatesNothing) {
  const auto cyclic = std::ranges::find(schemes_under_test, "Cyclic", &UnderTest::name);
  expect_no_allocations(*cyclic, Backend::shm_nodes);
}

INSTANTIATE_TEST_SUITE_P(Schemes, SchemeContractTest, ValuesIn(schemes_under_test),
                         [](const auto& tested) { return tested.param.name; });

TEST(AllocationCounterTest, Counts) {
  const std::size_t before = rondo::test::allocations_of_this_thread();

  const auto sgd = make_sgd(10, {});

  EXPECT_GT(rondo::test::allocations_of_this_thread(), before);
}

TEST(SchemeDescriptionTest, NamesThoseThatThereAre) {
  EXPECT_THAT([] { static_cast<void>(describe_scheme("lary")); },
              ThrowsMessage<std::invalid_argument>(HasSubstr(
                  "no scheme is called lary; there are: synchronous, sharded, lazy, k_step")));
}

}  // namespace
}  // namespace rondo::sync::scheme_contract_test

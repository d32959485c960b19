// Hierarchical averaging over ranks that are threads: what it computes, and what it counts.

#include <rondo/sync/hierarchical.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/optimizer.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "support/world.hpp"
#include "sync/arrays.hpp"

namespace rondo::sync::hierarchical_test {
namespace {

using rondo::test::RanksTest;
using rondo::test::World;
using test::Arrays;
using test::iterate;
using test::small_gradient;
using test::step_of;
using transport::Communicator;

constexpr ReductionMomentum half{.kind = MomentumKind::classical, .mu = 0.5F};

/// Groups of adjacent ranks.
struct Level {
  int period;
  int group;
};

/// The parameter of every rank after `steps` steps, worked out one rank after the other: the last
/// of `levels` is the global one.
std::vector<double> expected(const std::vector<Level>& levels, int ranks, int steps) {
  std::vector<double> w(static_cast<std::size_t>(ranks), 0.0);
  double common = 0.0;
  double velocity = 0.0;
  for (int step = 0; step < steps; ++step) {
    for (int rank = 0; rank < ranks; ++rank) {
      w[static_cast<std::size_t>(rank)] -= 0.5 * static_cast<double>(small_gradient(rank, step));
    }
    for (const Level& level : levels) {
      if ((step + 1) % level.period != 0) continue;
      for (std::size_t first = 0; first < w.size();
           first += static_cast<std::size_t>(level.group)) {
        const std::span group = std::span(w).subspan(first, static_cast<std::size_t>(level.group));
        double mean = 0.0;
        for (const double value : group) mean += value / level.group;
        std::ranges::fill(group, mean);
      }
    }
    if ((step + 1) % levels.back().period != 0) continue;
    velocity = 0.5 * velocity + (w[0] - common);
    common += velocity;
    std::ranges::fill(w, common);
  }
  return w;
}

/// Trains one parameter, with the levels but the last as local ones; compares after every step.
void expect_as_worked_out(transport::World& world, const std::vector<Level>& levels) {
  std::vector<Communicator> groups;
  for (const Level& level : levels) {
    groups.push_back(world.communicator().split(world.rank() / level.group));
  }
  HierarchicalOptions options{.period = levels.back().period, .momentum = half};
  for (std::size_t i = 0; i + 1 < levels.size(); ++i) {
    options.levels.push_back({levels[i].period, &groups[i]});
  }
  Arrays arrays(world, {1});
  const auto scheme = make_hierarchical(arrays.replica(), make_sgd(1, {.momentum = 0.0F}), options);
  const auto rank = static_cast<std::size_t>(world.rank());
  for (int step = 0; step < 2 * levels.back().period + 1; ++step) {
    iterate(*scheme, arrays, step_of(world, step, {.rate = 0.5}),
            [&](std::size_t, float) { return small_gradient(world.rank(), step); });
    ASSERT_EQ(static_cast<double>(arrays.parameters[0]),
              expected(levels, world.size(), step + 1)[rank])
        << "rank " << rank << " after step " << step;
  }
}

TEST(HierarchicalTest, AveragesAsWorkedOutByHand) {
  World{4}.run([](transport::World& world) { expect_as_worked_out(world, {{2, 2}, {6, 4}}); });
  World{8}.run(
      [](transport::World& world) { expect_as_worked_out(world, {{1, 2}, {2, 4}, {6, 8}}); });
  World{rondo::test::Backend::hierarchy, 4}.run(
      [](transport::World& world) { expect_as_worked_out(world, {{2, 2}, {4, 4}}); });
}

/// The result of ten steps: the parameters, and everything that was saved.
struct Outcome {
  std::vector<float> parameters;
  std::vector<std::byte> state;
  bool operator==(const Outcome&) const = default;
};

/// Gradients that depend on the parameters, and nothing exact about them.
Outcome train(transport::World& world, Arrays& arrays, UpdateScheme& scheme) {
  for (int step = 0; step < 10; ++step) {
    iterate(scheme, arrays, step_of(world, step, {.rate = 0.5}), [&](std::size_t i, float w) {
      return 0.61F * w + 0.37F * small_gradient(world.rank() + static_cast<int>(i), step);
    });
  }
  return {{arrays.parameters.begin(), arrays.parameters.end()}, scheme.save()};
}

Outcome train_k_step(transport::World& world, const KStepOptions& options) {
  Arrays arrays(world, {50, 30}, 3);
  return train(world, arrays, *make_k_step(arrays.replica(), make_sgd(80, {}), options));
}

Outcome train_hierarchical(transport::World& world, const HierarchicalOptions& options) {
  Arrays arrays(world, {50, 30}, 3);
  return train(world, arrays, *make_hierarchical(arrays.replica(), make_sgd(80, {}), options));
}

class HierarchicalDegenerateTest : public RanksTest {};

TEST_P(HierarchicalDegenerateTest, IsKStepWhereNoLevelAveragesMore) {
  World{ranks()}.run([](transport::World& world) {
    Communicator alone = world.communicator().split(world.rank());
    Communicator pair = world.communicator().split(world.rank() / 2);
    const Outcome k_step = train_k_step(world, {.period = 4, .momentum = half});

    for (const std::vector<AveragingLevel>& levels :
         {std::vector<AveragingLevel>{}, {{2, &alone}}, {{4, &pair}}}) {
      EXPECT_EQ(train_hierarchical(world, {.period = 4, .levels = levels, .momentum = half}),
                k_step);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Threads, HierarchicalDegenerateTest, testing::Values(1, 2, 3, 4));

TEST(HierarchicalTest, AveragesStatisticsWithinTheGroup) {
  World{4}.run([](transport::World& world) {
    Communicator pair = world.communicator().split(world.rank() / 2);
    Arrays arrays(world, {1}, 1);
    arrays.statistics[0] = static_cast<float>(world.rank());
    const auto scheme =
        make_hierarchical(arrays.replica(), make_sgd(1, {}), {.period = 4, .levels = {{1, &pair}}});

    iterate(*scheme, arrays, step_of(world, 0), [](std::size_t, float) { return 0.0F; });

    EXPECT_EQ(arrays.statistics[0], world.rank() < 2 ? 0.5F : 2.5F);
  });
}

/// Rank r has r + 1 samples, each with a gradient of r: pairs move by means of 2/3 and 18/7.
TEST(HierarchicalTest, ASampleWeighsTheSameInEveryGroup) {
  constexpr float rounding = 1e-6F;
  World{4}.run([](transport::World& world) {
    Communicator pair = world.communicator().split(world.rank() / 2);
    Arrays arrays(world, {1});
    const auto scheme = make_hierarchical(arrays.replica(), make_sgd(1, {.momentum = 0.0F}),
                                          {.period = 2, .levels = {{1, &pair}}});
    const auto samples = static_cast<float>(world.rank() + 1);
    const auto iterate_once = [&](int index) {
      Step step = step_of(world, index, {.rate = 1.0});
      step.local_samples = static_cast<std::size_t>(world.rank() + 1);
      step.global_samples = 10;
      iterate(*scheme, arrays, step,
              [&](std::size_t, float) { return -samples * static_cast<float>(world.rank()); });
    };

    iterate_once(0);
    EXPECT_NEAR(arrays.parameters[0], world.rank() < 2 ? 2.0F / 3.0F : 18.0F / 7.0F, rounding);

    iterate_once(1);
    EXPECT_NEAR(arrays.parameters[0], 2.0F * (2.0F + 18.0F) / 10.0F, rounding);
  });
}

TEST(HierarchicalTest, AGroupWithoutSamplesKeepsItsMomenta) {
  World{4}.run([](transport::World& world) {
    Communicator pair = world.communicator().split(world.rank() / 2);
    Arrays arrays(world, {3});
    const std::shared_ptr<Optimizer> sgd = make_sgd(3, {.momentum = 0.5F});
    const auto scheme = make_hierarchical(
        arrays.replica(), sgd,
        {.period = 2, .levels = {{1, &pair}}, .local_state = LocalState::average});
    for (int step = 0; step < 3; ++step) {
      Step next = step_of(world, step);
      if (step == 2) {
        next.local_samples = world.rank() < 2 ? 1 : 0;
        next.global_samples = 2;
      }
      iterate(*scheme, arrays, next, [](std::size_t, float) { return 1.0F; });
    }

    // 1, 1.5, and 1.75 after a third gradient of 1.
    EXPECT_THAT(sgd->state(), testing::Each(world.rank() < 2 ? 1.75F : 1.5F));
  });
}

}  // namespace
}  // namespace rondo::sync::hierarchical_test

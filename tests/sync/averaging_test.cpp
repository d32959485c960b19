// The optimizer's state when parameters are averaged, and how updates are counted.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/hierarchical.hpp>
#include <rondo/sync/k_step.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>
#include <rondo/transport/world.hpp>

#include "support/world.hpp"
#include "sync/arrays.hpp"

namespace rondo::sync::averaging_test {
namespace {

using rondo::test::RanksTest;
using rondo::test::World;
using test::Arrays;
using test::iterate;
using test::step_of;
using testing::Each;
using testing::ElementsAre;

constexpr test::StepOptions four_samples{.samples = 4, .rate = 0.5};

/// Changes nothing; remembers with what it was asked to.
class Recorder final : public Optimizer {
 public:
  explicit Recorder(std::size_t size) : size_(size) {}
  [[nodiscard]] std::size_t size() const noexcept override { return size_; }
  void update(std::size_t /*offset*/, std::span<float> /*parameters*/,
              std::span<const float> /*gradients*/, const Update& update) override {
    updates.push_back(update);
  }
  [[nodiscard]] bool ignores_scale() const noexcept override { return false; }
  [[nodiscard]] std::span<float> state() noexcept override { return {}; }
  void keep_state_in(std::span<float> /*memory*/) override {}
  [[nodiscard]] std::vector<std::byte> save() const override { return {}; }
  void restore(std::span<const std::byte> /*state*/) override {}

  [[nodiscard]] std::vector<std::int64_t> indices() const {
    std::vector<std::int64_t> indices;
    for (const Update& update : updates) indices.push_back(update.index);
    return indices;
  }

  std::vector<Update> updates = {};

 private:
  std::size_t size_;
};

/// The optimizer's state after one round of one step, in which rank r's gradient is r.
std::vector<float> state_after_a_round(transport::World& world, LocalState local_state) {
  Arrays arrays(world, {3});
  const std::shared_ptr<Optimizer> sgd = make_sgd(3, {});
  const auto scheme = make_k_step(arrays.replica(), sgd, {.period = 1, .local_state = local_state});
  iterate(*scheme, arrays, step_of(world, 0, four_samples),
          [&](std::size_t, float) { return 4.0F * static_cast<float>(world.rank()); });
  return {sgd->state().begin(), sgd->state().end()};
}

class AveragingLocalStateTest : public RanksTest {};

TEST_P(AveragingLocalStateTest, IsKeptAveragedOrReset) {
  World{ranks()}.run([](transport::World& world) {
    EXPECT_THAT(state_after_a_round(world, LocalState::keep),
                Each(static_cast<float>(world.rank())));
    EXPECT_THAT(state_after_a_round(world, LocalState::average),
                Each(static_cast<float>(world.size() - 1) / 2.0F));
    EXPECT_THAT(state_after_a_round(world, LocalState::reset), Each(0.0F));
  });
}

TEST_P(AveragingLocalStateTest, IsAveragedWithinTheGroupToo) {
  World{ranks()}.run([](transport::World& world) {
    transport::Communicator pair = world.communicator().split(world.rank() / 2);
    Arrays arrays(world, {3});
    const std::shared_ptr<Optimizer> sgd = make_sgd(3, {});
    const auto scheme = make_hierarchical(
        arrays.replica(), sgd,
        {.period = 4, .levels = {{2, &pair}}, .local_state = LocalState::average});

    for (int step = 0; step < 2; ++step) {
      iterate(*scheme, arrays, step_of(world, step, four_samples), [&](std::size_t, float) {
        return step == 0 ? 0.0F : 4.0F * static_cast<float>(world.rank());
      });
    }

    const float first = static_cast<float>(world.rank() / 2 * 2);
    EXPECT_THAT(sgd->state(), Each(pair.size() == 1 ? first : first + 0.5F));
  });
}

INSTANTIATE_TEST_SUITE_P(Threads, AveragingLocalStateTest, testing::Values(1, 2, 4));

/// The indices of the updates of six steps, the first of which is step 7, in rounds of two.
std::vector<std::int64_t> indices(LocalState local_state) {
  std::vector<std::int64_t> result;
  World{1}.run([&](transport::World& world) {
    Arrays arrays(world, {3});
    const auto recorder = std::make_shared<Recorder>(3);
    const auto scheme =
        make_k_step(arrays.replica(), recorder, {.period = 2, .local_state = local_state});
    for (int step = 7; step < 12; ++step) {
      iterate(*scheme, arrays, step_of(world, step, four_samples),
              [](std::size_t, float) { return 1.0F; });
    }
    result = recorder->indices();
  });
  return result;
}

TEST(AveragingUpdatesTest, CountOnFromTheFirstStepAndFromZeroAfterAReset) {
  EXPECT_THAT(indices(LocalState::keep), ElementsAre(7, 8, 9, 10, 11));
  EXPECT_THAT(indices(LocalState::reset), ElementsAre(7, 8, 0, 1, 0));
}

// Adam's first update goes as far as the learning rate, whatever the gradient's length.
TEST(AveragingUpdatesTest, StartAdamAnewAfterAReset) {
  constexpr float rounding = 1e-5F;
  World{2}.run([](transport::World& world) {
    Arrays arrays(world, {1});
    const auto scheme = make_k_step(arrays.replica(), make_adam(1),
                                    {.period = 1, .local_state = LocalState::reset});

    for (int step = 0; step < 3; ++step) {
      iterate(*scheme, arrays, step_of(world, step, four_samples),
              [&](std::size_t, float) { return step == 1 ? 400.0F : 4.0F; });
      EXPECT_NEAR(arrays.parameters[0], -0.5F * static_cast<float>(step + 1), rounding);
    }
  });
}

TEST(AveragingUpdatesTest, DivideByTheLocalSamples) {
  World{2}.run([](transport::World& world) {
    Arrays arrays(world, {3});
    const auto recorder = std::make_shared<Recorder>(3);
    const auto scheme = make_k_step(arrays.replica(), recorder, {.period = 2});

    iterate(*scheme, arrays, step_of(world, 0, four_samples),
            [](std::size_t, float) { return 1.0F; });

    ASSERT_EQ(recorder->updates.size(), 1U);
    EXPECT_EQ(recorder->updates[0].gradient_scale, 0.25F);
    EXPECT_EQ(recorder->updates[0].learning_rate, 0.5);
  });
}

// A rank that is lost before an average leaves nothing half averaged.

TEST(AveragingFailureTest, ALostRankLeavesParametersAndStatisticsAsTheyWere) {
  rondo::test::World{3}.run_without(2, [](transport::World& world) {
    test::Arrays arrays(world, {5000}, 7);
    const auto scheme = make_k_step(arrays.replica(), make_sgd(5000, {.momentum = 0.0F}),
                                    {.period = 1, .momentum = {.mu = 0.5F}});
    const auto mine = static_cast<float>(world.rank() + 1);
    arrays.statistics.assign(7, mine);

    EXPECT_THROW(test::iterate(*scheme, arrays,
                               {.local_samples = 1, .global_samples = 3, .learning_rate = 1.0},
                               [&](std::size_t, float) { return -mine; }),
                 transport::Error);

    EXPECT_TRUE(rondo::test::all_are(arrays.parameters, mine));
    EXPECT_THAT(arrays.statistics, Each(mine));
    EXPECT_TRUE(rondo::test::all_are(scheme->replicated().at(0), 0.0F));
    EXPECT_TRUE(rondo::test::all_are(scheme->replicated().at(1), 0.0F));
  });
}

}  // namespace
}  // namespace rondo::sync::averaging_test

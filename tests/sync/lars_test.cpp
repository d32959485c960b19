// LARS: the ratio of each array of weights, and that whole arrays reach it.

#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/synchronous.hpp>
#include <rondo/transport/world.hpp>

#include "support/error_text.hpp"
#include "support/team.hpp"
#include "support/world.hpp"
#include "sync/arrays.hpp"
#include "sync/optimizers.hpp"

namespace rondo::sync::lars_test {
namespace {

using test::random_values;
using testing::ContainerEq;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(LarsTest, FollowsItsFormula) {
  // Weights of norm 5, a bias, weights of norm 2. All values are exact in fp32.
  const auto lars =
      make_lars(5, {.trust_coefficient = 0.5, .momentum = 0.5F, .weights = {{0, 2}, {3, 2}}});
  std::vector<float> w{3.0F, 4.0F, 8.0F, 0.0F, 2.0F};

  // |g| = 0.25 * 40 = 10 and 0.25 * 16 = 4: ratios 0.25 and 0.25; of the bias 1.
  lars->update(0, w, std::vector<float>{0.0F, 40.0F, 8.0F, 16.0F, 0.0F}, {0.25F, 2.0});
  EXPECT_THAT(w, ElementsAre(3.0F, -1.0F, 4.0F, -2.0F, 2.0F));
  EXPECT_THAT(lars->state(), ElementsAre(0.0F, 2.5F, 2.0F, 1.0F, 0.0F));

  // Without a gradient the ratio is 1, and the velocities halve.
  lars->update(0, w, std::vector<float>(5), {0.25F, 2.0});
  EXPECT_THAT(w, ElementsAre(3.0F, -3.5F, 2.0F, -3.0F, 2.0F));
}

TEST(LarsTest, TheDecayIsAPartOfWhatTheRatioIsOf) {
  // |w| = 4, |g| = 2, lambda = 0.5: r = 1 * 4 / (2 + 2) = 1, so v = 2 + 2.
  const auto lars = make_lars(
      1, {.trust_coefficient = 1.0, .momentum = 0.0F, .weight_decay = 0.5F, .weights = {{0, 1}}});
  std::vector<float> w{4.0F};

  lars->update(0, w, std::vector<float>{2.0F}, {1.0F, 0.25});

  EXPECT_THAT(w, ElementsAre(3.0F));
}

// As an outer optimizer has it, whose gradient is a displacement.
TEST(LarsTest, ANegativeScaleTurnsTheGradientRound) {
  const auto stepped = [](float scale, std::vector<float> g) {
    std::vector<float> w{3.0F, 4.0F};
    make_lars(2, {.trust_coefficient = 0.5, .weight_decay = 0.5F, .weights = {{0, 2}}})
        ->update(0, w, g, {scale, 1.0});
    return w;
  };
  EXPECT_EQ(stepped(-1.0F, {6.0F, -8.0F}), stepped(1.0F, {-6.0F, 8.0F}));
}

TEST(LarsTest, ARatioOfOneIsSgd) {
  // trust_coefficient = |g| / |w| for every update: all values have the same length.
  const std::vector<float> g(100, 0.5F);
  std::vector<float> by_lars(100, 2.0F);
  std::vector<float> by_sgd = by_lars;
  make_lars(100, {.trust_coefficient = 0.25, .weights = {{0, 100}}})
      ->update(0, by_lars, g, {1.0F, 0.125});
  make_sgd(100, {})->update(0, by_sgd, g, {1.0F, 0.125});

  EXPECT_THAT(by_lars, ContainerEq(by_sgd));
}

TEST(LarsTest, ARangeHoldsWholeWeights) {
  const auto lars = make_lars(10, {.weights = {{2, 4}}});
  std::vector<float> w(10, 1.0F);
  const std::vector<float> g(10, 1.0F);
  const auto update = [&](std::size_t first, std::size_t count) {
    lars->update(first, std::span(w).subspan(first, count), std::span(g).subspan(first, count),
                 {1.0F, 0.1});
  };

  EXPECT_NO_THROW(update(0, 2));
  EXPECT_NO_THROW(update(2, 4));
  EXPECT_NO_THROW(update(6, 4));
  EXPECT_THAT(rondo::test::error_text<std::invalid_argument>([&] { update(0, 5); }),
              HasSubstr("cuts the weights from 2 to 6"));
  EXPECT_THROW(update(3, 7), std::invalid_argument);
  EXPECT_THROW(update(3, 2), std::invalid_argument);
}

TEST(LarsTest, ThreadsDoNotChangeItsBits) {
  constexpr std::size_t size = 300'000;
  const LarsOptions options{.weight_decay = 0.1F, .weights = {{10, 200'000}, {200'020, 90'000}}};
  const std::vector<float> g = random_values(size, 2);
  std::vector<float> alone = random_values(size, 1);
  std::vector<float> shared = alone;
  rondo::test::ThreadTeam team(3);

  make_lars(size, options)->update(0, alone, g, {0.5F, 0.1});
  make_lars(size, options, &team)->update(0, shared, g, {0.5F, 0.1});

  EXPECT_THAT(shared, ContainerEq(alone));
}

// Long layers are updated in parts by optimizers that allow it.
TEST(LarsTest, SynchronousUpdatesGiveItWholeLayers) {
  constexpr std::size_t weights = 600'000;
  const LarsOptions options{.weights = {{0, weights}}};
  const std::vector<float> begin = random_values(weights + 3, 1);
  const std::vector<float> g = random_values(weights + 3, 2);
  std::vector<float> expected = begin;
  make_lars(begin.size(), options)->update(0, expected, g, {1.0F, 0.1});
  rondo::test::World{1}.run([&](transport::World& world) {
    test::Arrays arrays(world, {weights, 3});
    arrays.parameters.assign(begin.begin(), begin.end());
    const auto scheme = make_synchronous(arrays.replica(), make_lars(begin.size(), options));

    test::iterate(*scheme, arrays, {.local_samples = 1, .global_samples = 1, .learning_rate = 0.1},
                  [&](std::size_t element, float) { return g[element]; });

    EXPECT_THAT(arrays.parameters, testing::ElementsAreArray(expected));
  });
}

TEST(LarsTest, RefusesOptionsThatMakeNoSense) {
  EXPECT_THROW((void)make_lars(4, {.trust_coefficient = 0.0}), std::invalid_argument);
  for (const float momentum : {-0.5F, 1.0F, 9.0F, std::nanf("")}) {
    EXPECT_THROW((void)make_lars(4, {.momentum = momentum}), std::invalid_argument);
    EXPECT_THROW((void)make_sgd(4, {.momentum = momentum}), std::invalid_argument);
  }
  EXPECT_THROW((void)make_lars(4, {.weight_decay = -1.0F}), std::invalid_argument);
  EXPECT_THROW((void)make_sgd(4, {.weight_decay = -1.0F}), std::invalid_argument);
  EXPECT_THROW((void)make_lars(4, {.weights = {{3, 2}}}), std::invalid_argument);
  EXPECT_THROW((void)make_lars(4, {.weights = {{2, 1}, {0, 1}}}), std::invalid_argument);
}

}  // namespace
}  // namespace rondo::sync::lars_test

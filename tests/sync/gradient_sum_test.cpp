// Sums of gradients: the micro-batches of a step add up to the whole.

#include <rondo/sync/optimizer.hpp>

#include <cmath>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/synchronous.hpp>

#include "support/allocations.hpp"
#include "support/world.hpp"
#include "sync/arrays.hpp"
#include "sync/optimizers.hpp"

namespace rondo::sync::gradient_sum_test {
namespace {

using test::Arrays;
using test::random_values;
using testing::Each;
using testing::ElementsAre;
using testing::ElementsAreArray;

TEST(GradientSumTest, AddsTheMicroBatchesToTheLastOne) {
  GradientSum sum(3);
  std::vector<float> last{100.0F, 200.0F, 300.0F};

  sum.add(0, std::vector<float>{1.0F, 2.0F, 3.0F});
  sum.add(0, std::vector<float>{10.0F, 20.0F, 30.0F});
  sum.move_to(0, last);

  EXPECT_THAT(last, ElementsAre(111.0F, 222.0F, 333.0F));
}

TEST(GradientSumTest, SetBeginsARangeAnewAndFactorsScale) {
  GradientSum sum(3);

  sum.add(0, std::vector<float>{1.0F, 2.0F, 3.0F});
  sum.set(1, std::vector<float>{-0.0F, 8.0F}, 0.5F);
  sum.add(0, std::vector<float>{10.0F}, 2.0F);

  EXPECT_THAT(sum.values(), ElementsAre(21.0F, -0.0F, 4.0F));
  EXPECT_TRUE(std::signbit(sum.values()[1]));
}

TEST(GradientSumTest, BeginsAgainWhereItWasTakenOut) {
  GradientSum sum(3);
  std::vector<float> one{0.0F};
  std::vector<float> all(3);

  sum.add(0, std::vector<float>{1.0F, 2.0F, 3.0F});
  sum.move_to(1, one);
  EXPECT_THAT(one, ElementsAre(2.0F));

  sum.add(2, std::vector<float>{30.0F});
  sum.move_to(0, all);
  EXPECT_THAT(all, ElementsAre(1.0F, 0.0F, 33.0F));
}

TEST(GradientSumTest, DoesNotDependOnTheThreads) {
  constexpr std::size_t size = 200'001;
  test::ThreeThreads team;
  GradientSum alone(size);
  GradientSum shared(size, &team);
  std::vector<float> expected = random_values(size, 1);
  std::vector<float> values = expected;

  for (GradientSum* const sum : {&alone, &shared}) {
    sum->add(0, random_values(size, 2));
    sum->add(0, random_values(size, 3));
  }
  alone.move_to(0, expected);
  shared.move_to(0, values);

  EXPECT_EQ(values, expected);
  std::vector<float> rest(size, 0.0F);
  shared.move_to(0, rest);
  EXPECT_THAT(rest, Each(0.0F));
}

TEST(GradientSumTest, RefusesARangeThatDoesNotFit) {
  GradientSum sum(4);
  std::vector<float> three(3);

  EXPECT_THROW(sum.add(2, three), std::invalid_argument);
  EXPECT_THROW(sum.move_to(2, three), std::invalid_argument);
  EXPECT_THROW(sum.move_to(9, three), std::invalid_argument);
}

/// The gradient of samples [first, last): whole numbers, so that sums are exact in any order.
void fill_gradients(Arrays& arrays, int first, int last) {
  for (std::size_t i = 0; i < arrays.gradients.size(); ++i) {
    arrays.gradients[i] = 0.0F;
    for (int sample = first; sample < last; ++sample) {
      arrays.gradients[i] += static_cast<float>((sample * 7 + static_cast<int>(i % 11)) % 13 - 6);
    }
  }
}

/// One step of eight samples on each rank, in micro-batches that end at `ends`.
void train_step(UpdateScheme& scheme, Arrays& arrays, GradientSum& sum, int rank,
                const std::vector<int>& ends, int index) {
  const Replica replica = arrays.replica();
  scheme.begin({.index = index, .local_samples = 8, .global_samples = 16, .learning_rate = 0.125});
  int first = rank * 8;
  for (const int end : ends) {
    fill_gradients(arrays, first, rank * 8 + end);
    first = rank * 8 + end;
    if (end < 8) sum.add(0, arrays.gradients);
  }
  for (std::size_t layer = arrays.layers(); layer-- > 0;) {
    const auto [name, offset, size, groups] = replica.layers[layer];
    sum.move_to(offset, std::span(arrays.gradients).subspan(offset, size));
    scheme.gradients_final(layer);
  }
  scheme.finish();
}

TEST(GradientSumTest, UnequalMicroBatchesTrainAsTheWholeDoes) {
  rondo::test::World{2}.run([](transport::World& world) {
    Arrays whole(world, {40, 3, 700});
    Arrays parts(world, {40, 3, 700});
    const auto plain = make_synchronous(whole.replica(), make_sgd(743, {}), {512, 64});
    const auto accumulating = make_synchronous(parts.replica(), make_sgd(743, {}), {512, 64});
    GradientSum sum(743);

    for (int step = 0; step < 3; ++step) {
      train_step(*plain, whole, sum, world.rank(), {8}, step);
      train_step(*accumulating, parts, sum, world.rank(), {3, 4, 8}, step);
    }

    EXPECT_THAT(parts.parameters, ElementsAreArray(whole.parameters));
    EXPECT_EQ(accumulating->counters().global_reductions, 3U);
  });
}

TEST(GradientSumTest, AllocatesNothing) {
  GradientSum sum(1000);
  std::vector<float> values(1000, 1.0F);

  const std::size_t before = rondo::test::allocations_of_this_thread();
  sum.add(0, values);
  sum.move_to(0, values);

  EXPECT_EQ(rondo::test::allocations_of_this_thread() - before, 0U);
}

}  // namespace
}  // namespace rondo::sync::gradient_sum_test

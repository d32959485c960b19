// The promises of every optimizer: bits that depend on nothing but the numbers, exact state.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/synchronous.hpp>

#include "support/allocations.hpp"
#include "support/team.hpp"
#include "support/world.hpp"
#include "sync/arrays.hpp"
#include "sync/optimizers.hpp"

namespace rondo::sync::optimizer_test {
namespace {

using test::Arrays;
using test::random_values;
using testing::ContainerEq;
using testing::Each;
using testing::ElementsAre;
using testing::ElementsAreArray;

constexpr double usual_decay = 0.01;

struct Kind {
  std::string name;
  std::size_t state_arrays;
  std::function<std::unique_ptr<Optimizer>(std::size_t size, double weight_decay,
                                           const std::vector<ElementRange>& undecayed,
                                           transport::Team* team)>
      make_optimizer;
};

void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

/// As random_values(), but made once: long ones take longer than what is done with them.
const std::vector<float>& known_values(std::size_t size, std::uint32_t seed) {
  static std::map<std::pair<std::size_t, std::uint32_t>, std::vector<float>> known;
  std::vector<float>& values = known[{size, seed}];
  if (values.size() != size) values = random_values(size, seed);
  return values;
}

class OptimizerTest : public testing::TestWithParam<Kind> {
 protected:
  static std::unique_ptr<Optimizer> make(std::size_t size, transport::Team* team = nullptr) {
    return make(size, usual_decay, {}, team);
  }

  static std::unique_ptr<Optimizer> make(std::size_t size, double weight_decay,
                                         const std::vector<ElementRange>& undecayed,
                                         transport::Team* team = nullptr) {
    return GetParam().make_optimizer(size, weight_decay, undecayed, team);
  }

  /// The parameters after three updates, where range i is [cuts[i], cuts[i+1]).
  static std::vector<float> trained(const std::vector<std::size_t>& cuts,
                                    transport::Team* team = nullptr) {
    return trained(*make(cuts.back(), team), cuts);
  }

  static std::vector<float> trained(Optimizer& optimizer, const std::vector<std::size_t>& cuts) {
    const std::size_t size = cuts.back();
    std::vector<float> w = known_values(size, 4);
    for (std::uint32_t step = 0; step < 3; ++step) {
      const std::vector<float>& g = known_values(size, 5 + step);
      for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
        const std::size_t count = cuts[i + 1] - cuts[i];
        optimizer.update(cuts[i], std::span(w).subspan(cuts[i], count),
                         std::span(g).subspan(cuts[i], count), {0.5F, 0.1, step});
      }
    }
    return w;
  }
};

TEST_P(OptimizerTest, DoesNotDependOnHowTheArrayIsCut) {
  EXPECT_THAT(trained({0, 1, 18, 18, 100}), ContainerEq(trained({0, 100})));
}

TEST_P(OptimizerTest, DoesNotDependOnTheThreads) {
  rondo::test::ThreadTeam team(3);

  EXPECT_EQ(trained({0, 200'001}, &team), trained({0, 200'001}));
}

// Both are updated as by an optimizer that has no ranges: with weight decay, and without any.
TEST_P(OptimizerTest, WeightDecayLeavesOutTheRangesItIsTold) {
  constexpr std::size_t size = 200'001;  // enough for a team
  const std::vector<ElementRange> undecayed = {{0, 3}, {10, 0}, {17, 4}, {21, 1}, {70'000, 90'000}};
  const std::vector<float> decayed = trained(*make(size, usual_decay, {}), {0, size});
  const std::vector<float> plain = trained(*make(size, 0.0, {}), {0, size});
  std::vector<float> expected = decayed;
  for (const auto& [offset, count] : undecayed) {
    std::copy_n(plain.begin() + static_cast<std::ptrdiff_t>(offset), count,
                expected.begin() + static_cast<std::ptrdiff_t>(offset));
  }
  ASSERT_NE(plain[18], decayed[18]);

  rondo::test::ThreadTeam team(3);
  for (const std::vector<std::size_t>& cuts :
       {std::vector<std::size_t>{0, size}, {0, 1, 2, 3, 10, 18, 18, 22, 100'000, size}}) {
    EXPECT_EQ(trained(*make(size, usual_decay, undecayed), cuts), expected);
    EXPECT_EQ(trained(*make(size, usual_decay, undecayed, &team), cuts), expected);
  }
}

TEST_P(OptimizerTest, RefusesRangesWithoutDecayThatDoNotFit) {
  for (const std::vector<ElementRange>& ranges :
       {std::vector<ElementRange>{{5, 2}, {3, 2}}, {{3, 3}, {5, 2}}, {{49, 2}}, {{51, 1}}}) {
    EXPECT_THROW(make(50, usual_decay, ranges), std::invalid_argument);
  }
}

TEST_P(OptimizerTest, RefusesARangeThatDoesNotFitAndChangesNothing) {
  const auto optimizer = make(4);
  std::vector<float> w(3, 1.0F);
  const std::vector<float> g(3, 1.0F);

  EXPECT_THROW(optimizer->update(2, w, g, {1.0F, 0.1}), std::invalid_argument);
  EXPECT_THROW(optimizer->update(9, w, g, {1.0F, 0.1}), std::invalid_argument);
  EXPECT_THROW(optimizer->update(0, w, std::vector<float>(2), {1.0F, 0.1}), std::invalid_argument);
  EXPECT_THROW(optimizer->preview(2, w, g, {1.0F, 0.1}), std::invalid_argument);
  EXPECT_THROW(optimizer->preview(9, w, g, {1.0F, 0.1}), std::invalid_argument);

  EXPECT_THAT(w, Each(1.0F));
  EXPECT_THAT(optimizer->state(), Each(0.0F));
}

TEST_P(OptimizerTest, ItsStateIsArraysAsLongAsTheParameters) {
  const auto optimizer = make(50);

  EXPECT_EQ(optimizer->size(), 50U);
  EXPECT_EQ(optimizer->state().size(), 50 * GetParam().state_arrays);
  EXPECT_THAT(optimizer->state(), Each(0.0F));
}

TEST_P(OptimizerTest, ChangesOfTheStateOnlyTheRangeGiven) {
  const auto optimizer = make(50);
  std::vector<float> w = random_values(10, 1);

  optimizer->update(20, w, random_values(10, 2), {1.0F, 0.1});

  for (std::size_t i = 0; i < optimizer->state().size(); ++i) {
    const std::size_t element = i % 50;
    EXPECT_EQ(optimizer->state()[i] != 0.0F, 20 <= element && element < 30) << i;
  }
}

TEST_P(OptimizerTest, ContinuesExactlyFromItsStateAndRefusesOthers) {
  const auto first = make(50);
  const auto second = make(50);
  std::vector<float> w = random_values(50, 1);
  first->update(0, w, random_values(50, 2), {1.0F, 0.1, 0});
  std::vector<float> copy = w;

  const std::vector<std::byte> state = first->save();
  second->restore(state);
  EXPECT_THROW(second->restore(make(49)->save()), std::invalid_argument);
  EXPECT_THROW(second->restore(std::span(state).first(state.size() - 1)), std::invalid_argument);
  EXPECT_EQ(second->save(), state);
  first->update(0, w, random_values(50, 3), {1.0F, 0.1, 1});
  second->update(0, copy, random_values(50, 3), {1.0F, 0.1, 1});

  EXPECT_THAT(copy, ContainerEq(w));
  EXPECT_EQ(second->save(), first->save());
}

TEST_P(OptimizerTest, KeepsItsStateInMemoryThatIsLent) {
  const auto own = make(50);
  const auto lent = make(50);
  std::vector<float> w = random_values(50, 1);
  own->update(0, w, random_values(50, 2), {1.0F, 0.1, 0});
  std::vector<float> copy = w;
  std::vector<float> memory(own->state().begin(), own->state().end());

  EXPECT_THROW(lent->keep_state_in(std::span(memory).first(49)), std::invalid_argument);
  lent->keep_state_in(memory);
  own->update(0, w, random_values(50, 3), {1.0F, 0.1, 1});
  lent->update(0, copy, random_values(50, 3), {1.0F, 0.1, 1});

  EXPECT_THAT(copy, ContainerEq(w));
  EXPECT_EQ(lent->state().data(), memory.data());
  EXPECT_TRUE(std::ranges::equal(memory, own->state()));
}

TEST_P(OptimizerTest, APreviewIsTheUpdateWithoutItsTrace) {
  const auto optimizer = make(50);
  std::vector<float> w = random_values(50, 1);
  optimizer->update(0, w, random_values(50, 2), {1.0F, 0.1, 0});
  const std::vector<std::byte> before = optimizer->save();
  const std::vector<float> g = random_values(10, 3);
  const auto range = std::span(w).subspan(20, 10);
  std::vector<float> copy(range.begin(), range.end());

  optimizer->preview(20, copy, g, {1.0F, 0.1, 1});

  EXPECT_EQ(optimizer->save(), before);
  optimizer->update(20, range, g, {1.0F, 0.1, 1});
  EXPECT_TRUE(std::ranges::equal(copy, range));
  EXPECT_NE(optimizer->save(), before);
}

TEST_P(OptimizerTest, AnUpdateAllocatesNothing) {
  const auto optimizer = make(1000);
  std::vector<float> w = random_values(1000, 1);
  const std::vector<float> g = random_values(1000, 2);

  const std::size_t before = rondo::test::allocations_of_this_thread();
  for (int step = 0; step < 5; ++step) optimizer->update(0, w, g, {1.0F, 0.1, step});

  EXPECT_EQ(rondo::test::allocations_of_this_thread() - before, 0U);
}

TEST_P(OptimizerTest, SaysWhetherItIgnoresTheScale) {
  const auto once = make(50);
  const auto twice = make(50);
  std::vector<float> w(50, 0.0F);  // where no weight decay acts
  std::vector<float> v(50, 0.0F);

  once->update(0, w, std::vector<float>(50, 4.0F), {1.0F, 0.125});
  twice->update(0, v, std::vector<float>(50, 4.0F), {2.0F, 0.125});

  EXPECT_EQ(w == v, once->ignores_scale());
}

TEST_P(OptimizerTest, ScalesTheDecayAsAsked) {
  const auto scaled = make(20);
  const auto half = make(20, usual_decay / 2, {});
  std::vector<float> w = random_values(20, 1);
  std::vector<float> expected = w;
  for (std::uint32_t step = 0; step < 3; ++step) {
    scaled->update(0, w, random_values(20, 10 + step), {0.25F, 0.1, step, 0.5F});
    half->update(0, expected, random_values(20, 10 + step), {0.25F, 0.1, step});
  }
  EXPECT_THAT(w, ContainerEq(expected));
}

using Ranges = std::vector<ElementRange>;

/// An optimizer with these options besides.
template <auto make_optimizer, typename Options>
Kind kind_of(std::string name, std::size_t state_arrays, const Options& options) {
  return {
      std::move(name), state_arrays,
      [options](std::size_t size, double decay, const Ranges& undecayed, transport::Team* team) {
        Options all = options;
        all.weight_decay = static_cast<decltype(all.weight_decay)>(decay);
        all.undecayed = undecayed;
        return make_optimizer(size, all, team);
      }};
}

INSTANTIATE_TEST_SUITE_P(All, OptimizerTest,
                         testing::Values(kind_of<make_sgd>("Sgd", 1, SgdOptions{}),
                                         kind_of<make_sgd>("Nesterov", 1,
                                                           SgdOptions{.nesterov = true}),
                                         kind_of<make_lars>("LarsWithoutWeights", 1, LarsOptions{}),
                                         kind_of<make_adam>("Adam", 2, AdamOptions{}),
                                         kind_of<make_adamw>("AdamW", 2, AdamOptions{})),
                         [](const auto& test) { return test.param.name; });

// Sums of gradients: the micro-batches of a step add up to the whole.

TEST(GradientSumTest, AddsTheMicroBatchesToTheLastOne) {
  GradientSum sum(3);
  std::vector<float> last{100.0F, 200.0F, 300.0F};

  const std::vector<float> first{1.0F, 2.0F, 3.0F};
  const std::vector<float> second{10.0F, 20.0F, 30.0F};

  const std::size_t before = rondo::test::allocations_of_this_thread();
  sum.add(0, first);
  sum.add(0, second);
  sum.move_to(0, last);

  EXPECT_EQ(rondo::test::allocations_of_this_thread() - before, 0U);
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
  rondo::test::ThreadTeam team(3);
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

/// The rates of some steps.
struct Rates {
  const char* what;
  LearningRate rate;
  std::map<std::int64_t, double> at;
};

TEST(LearningRateTest, FollowsItsSchedule) {
  const std::vector<Rates> table = {
      {"warms up linearly to the base",
       {.base = 1.0, .warmup_steps = 4, .total_steps = 10},
       {{0, 0.25}, {3, 1.0}}},
      {"stays constant",
       {.base = 0.5, .decay = Decay::constant, .total_steps = 10},
       {{0, 0.5}, {9, 0.5}}},
      {"follows half a cosine to the final rate",
       {.base = 1.0, .final_rate = 0.2, .warmup_steps = 2, .total_steps = 10},
       {{2, 1.0}, {6, 0.6}, {10, 0.2}, {11, 0.2}}},
      {"comes exponentially to the final rate with the last step",
       {.base = 1e-4, .final_rate = 1.0, .decay = Decay::exponential, .total_steps = 5},
       {{0, 1e-4}, {1, 1e-3}, {4, 1.0}, {9, 1.0}}},
      {"falls by the factor at every milestone",
       {.base = 1.0, .decay = Decay::steps, .milestones = {4, 6}, .factor = 0.5},
       {{3, 1.0}, {4, 0.5}, {5, 0.5}, {6, 0.25}, {1000, 0.25}}},
      {"milestones within the warm-up count after it",
       {.base = 1.0,
        .decay = Decay::steps,
        .warmup_steps = 4,
        .milestones = {8, 2},
        .factor = 0.25},
       {{0, 0.25}, {2, 0.75}, {3, 1.0}, {4, 0.25}, {7, 0.25}, {8, 0.0625}}},
      {"without milestones the steps are constant",
       {.base = 0.5, .decay = Decay::steps},
       {{9, 0.5}}}};
  for (const auto& [what, rate, at] : table) {
    for (const auto& [step, value] : at) {
      EXPECT_DOUBLE_EQ(rate.at(step), value) << what << ", step " << step;
    }
  }
}

}  // namespace
}  // namespace rondo::sync::optimizer_test

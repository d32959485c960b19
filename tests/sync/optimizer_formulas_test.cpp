// The formula of every optimizer, by every kernel: SGD with momentum and weight decay, Adam and
// AdamW, LARS.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/synchronous.hpp>
#include <rondo/transport/world.hpp>

#include "optimizer/kernels.hpp"
#include "support/error_text.hpp"
#include "support/team.hpp"
#include "support/world.hpp"
#include "sync/arrays.hpp"
#include "sync/optimizers.hpp"

namespace rondo::sync::optimizer_formulas_test {
namespace {

using test::random_values;
using testing::ContainerEq;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pointwise;

TEST(SgdTest, FollowsItsFormula) {
  // v = 0.5 v + (g / 4 + 0.25 w);  w = w - 2 v; all values are exact in fp32.
  const auto sgd = make_sgd(1, {.momentum = 0.5F, .weight_decay = 0.25F});
  std::vector<float> w{8.0F};

  sgd->update(0, w, std::vector<float>{4.0F}, {0.25F, 2.0});
  EXPECT_THAT(w, ElementsAre(2.0F));  // v = 1 + 2 = 3

  sgd->update(0, w, std::vector<float>{0.0F}, {0.25F, 2.0});
  EXPECT_THAT(w, ElementsAre(-2.0F));  // v = 1.5 + 0.5 = 2
}

TEST(SgdTest, LooksAheadAsPyTorchDoes) {
  // torch.optim.SGD: d = g + lambda w; buf = mu buf + d; w = w - lr (d + mu buf); exact in fp32.
  const auto sgd = make_sgd(1, {.momentum = 0.5F, .nesterov = true, .weight_decay = 0.25F});
  std::vector<float> w{8.0F};

  sgd->update(0, w, std::vector<float>{4.0F}, {0.25F, 2.0});
  EXPECT_THAT(w, ElementsAre(-1.0F));  // d = 1 + 2, buf = 3: 8 - 2 (3 + 1.5)

  sgd->update(0, w, std::vector<float>{2.0F}, {0.25F, 2.0});
  EXPECT_THAT(w, ElementsAre(-3.25F));  // d = 0.5 - 0.25, buf = 1.75: -1 - 2 (0.25 + 0.875)
  EXPECT_THAT(sgd->state(), ElementsAre(1.75F));
}

TEST(SgdTest, WithoutMomentumNesterovIsPlain) {
  const std::vector<float> g = random_values(100, 3);
  std::vector<float> plain = random_values(100, 1);
  std::vector<float> ahead = plain;
  make_sgd(100, {.momentum = 0.0F, .weight_decay = 0.1F})->update(0, plain, g, {0.25F, 0.1});
  make_sgd(100, {.momentum = 0.0F, .nesterov = true, .weight_decay = 0.1F})
      ->update(0, ahead, g, {0.25F, 0.1});
  EXPECT_THAT(ahead, ContainerEq(plain));
}

/// Plain momentum, and Nesterov's.
class SgdKernelTest : public testing::TestWithParam<decltype(&UpdateKernels::sgd)> {};

TEST_P(SgdKernelTest, AllInstructionSetsAgreeBitForBit) {
  const SgdFactors factors{1.0F / 128, 0.9F, 5e-4F, 0.1F};
  for (const std::size_t size : {0U, 1U, 7U, 8U, 15U, 16U, 17U, 63U, 64U, 100U, 1001U}) {
    std::vector<float> expected_w = random_values(size, 1);
    std::vector<float> expected_v = random_values(size, 2);
    const std::vector<float> g = random_values(size, 3);
    (baseline::update_kernels.*GetParam())({expected_w.data(), expected_v.data(), g.data()}, size,
                                           factors);
    for (const UpdateKernels* kernels : runnable_kernels()) {
      std::vector<float> w = random_values(size, 1);
      std::vector<float> v = random_values(size, 2);

      (kernels->*GetParam())({w.data(), v.data(), g.data()}, size, factors);

      EXPECT_THAT(w, ContainerEq(expected_w)) << kernels->instruction_set << ", " << size;
      EXPECT_THAT(v, ContainerEq(expected_v)) << kernels->instruction_set << ", " << size;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, SgdKernelTest,
                         testing::Values(&UpdateKernels::sgd, &UpdateKernels::nesterov));

TEST(SgdTest, TheKernelRoundsAfterEveryOperation) {
  std::vector<float> w = random_values(1000, 1);
  std::vector<float> v = random_values(1000, 2);
  const std::vector<float> g = random_values(1000, 3);
  std::vector<float> expected(w.size());
  for (std::size_t i = 0; i < w.size(); ++i) {
    volatile const float scaled = 0.3F * g[i];  // volatile: each product is rounded to fp32
    volatile const float decayed = 0.01F * w[i];
    volatile const float carried = 0.9F * v[i];
    volatile const float gradient = scaled + decayed;
    volatile const float velocity = carried + gradient;
    volatile const float change = 0.1F * velocity;
    expected[i] = w[i] - change;
  }

  runnable_kernels().back()->sgd({w.data(), v.data(), g.data()}, w.size(),
                                 {0.3F, 0.9F, 0.01F, 0.1F});

  EXPECT_THAT(w, ContainerEq(expected));
}

// Adam and AdamW against the formulas of their papers, by every kernel.

/// For a parameter of about 1 after ten updates in fp32, each of about 0.01.
constexpr double tolerance = 2e-6;

constexpr AdamOptions options{.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-4, .weight_decay = 0.1};
constexpr double rate = 0.01;
constexpr double scale = 0.25;

/// One parameter in double, as the papers have it.
struct Model {
  bool decay_apart;
  double w;
  double m = 0.0;
  double v = 0.0;

  void update(double gradient, int t) {
    double g = scale * gradient;
    if (!decay_apart) g += options.weight_decay * w;
    m = options.beta1 * m + (1.0 - options.beta1) * g;
    v = options.beta2 * v + (1.0 - options.beta2) * g * g;
    const double unbiased_m = m / (1.0 - std::pow(options.beta1, t));
    const double unbiased_v = v / (1.0 - std::pow(options.beta2, t));
    const double decayed = decay_apart ? rate * options.weight_decay * w : 0.0;
    w = w - decayed - rate * unbiased_m / (std::sqrt(unbiased_v) + options.epsilon);
  }
};

void expect_model(Optimizer& optimizer, bool decay_apart) {
  std::vector<float> w = random_values(20, 1);
  std::vector<Model> models;
  for (const float value : w) models.push_back({decay_apart, value});

  for (int step = 0; step < 10; ++step) {
    const std::vector<float> g = random_values(20, 10 + static_cast<std::uint32_t>(step));
    optimizer.update(0, w, g, {static_cast<float>(scale), rate, step});
    for (std::size_t i = 0; i < models.size(); ++i) models[i].update(g[i], step + 1);
  }

  for (std::size_t i = 0; i < models.size(); ++i) {
    EXPECT_NEAR(w[i], models[i].w, tolerance) << i;
    EXPECT_NEAR(optimizer.state()[i], models[i].m, tolerance) << i;
    EXPECT_NEAR(optimizer.state()[20 + i], models[i].v, tolerance) << i;
  }
}

// The decay is in the gradient, and with AdamW apart.
TEST(AdamTest, FollowsItsFormula) {
  expect_model(*make_adam(20, options), false);
  expect_model(*make_adamw(20, options), true);
}

TEST(AdamTest, TheFirstUpdateIsTheRateTimesTheSign) {
  const auto adam = make_adam(2, {.epsilon = 0.0});
  std::vector<float> w{1.0F, 1.0F};

  adam->update(0, w, std::vector<float>{1000.0F, -0.001F}, {1.0F, 0.25, 0});

  EXPECT_THAT(w, Pointwise(testing::FloatNear(1e-6F), std::vector<float>{0.75F, 1.25F}));
}

TEST(AdamTest, WithoutDecayBothAreTheSame) {
  const auto adam = make_adam(50);
  const auto adamw = make_adamw(50);
  std::vector<float> w = random_values(50, 1);
  std::vector<float> copy = w;

  for (int step = 0; step < 3; ++step) {
    adam->update(0, w, random_values(50, 2), {0.5F, 0.1, step});
    adamw->update(0, copy, random_values(50, 2), {0.5F, 0.1, step});
  }

  EXPECT_THAT(copy, ContainerEq(w));
}

TEST(AdamTest, AfterManyUpdatesTheBiasIsGone) {
  const auto adam = make_adam(1, {.beta1 = 0.5, .beta2 = 0.5, .epsilon = 0.0});
  std::vector<float> state{8.0F, 4.0F};  // m and v
  adam->keep_state_in(state);
  std::vector<float> w{0.0F};

  adam->update(0, w, std::vector<float>{0.0F}, {1.0F, 1.0, 1'000'000'000'000});

  // m = 4, v = 2, and 1 - 0.5^t = 1.
  EXPECT_FLOAT_EQ(w[0], -4.0F / std::sqrt(2.0F));
}

constexpr AdamFactors factors{.scale = 1.0F / 128,
                              .decay = 5e-4F,
                              .shrink = 0.999F,
                              .beta1 = 0.9F,
                              .rest1 = 0.1F,
                              .beta2 = 0.999F,
                              .rest2 = 0.001F,
                              .correction = 1.7F,
                              .epsilon = 1e-8F,
                              .rate = 0.1F};

/// Arrays that a kernel works on.
struct Arrays {
  explicit Arrays(std::size_t size)
      : w(random_values(size, 1)),
        m(random_values(size, 2)),
        v(random_values(size, 3)),
        g(random_values(size, 4)) {
    for (float& value : v) value = value * value;
  }

  void run(const UpdateKernels& kernels) {
    kernels.adam({w.data(), m.data(), v.data(), g.data()}, w.size(), factors);
  }

  std::vector<float> w;
  std::vector<float> m;
  std::vector<float> v;
  std::vector<float> g;
};

TEST(AdamTest, AllInstructionSetsAgreeBitForBit) {
  for (const std::size_t size : {0U, 1U, 7U, 8U, 15U, 16U, 17U, 63U, 64U, 100U, 10'001U}) {
    Arrays expected(size);
    expected.run(baseline::update_kernels);
    for (const UpdateKernels* kernels : runnable_kernels()) {
      Arrays arrays(size);

      arrays.run(*kernels);

      EXPECT_THAT(arrays.w, ContainerEq(expected.w)) << kernels->instruction_set << ", " << size;
      EXPECT_THAT(arrays.m, ContainerEq(expected.m)) << kernels->instruction_set << ", " << size;
      EXPECT_THAT(arrays.v, ContainerEq(expected.v)) << kernels->instruction_set << ", " << size;
    }
  }
}

TEST(AdamTest, TheKernelRoundsAfterEveryOperation) {
  Arrays arrays(1000);
  const Arrays before = arrays;
  std::vector<float> expected(before.w.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    volatile const float scaled = factors.scale * before.g[i];  // volatile: rounded to fp32
    volatile const float decayed = factors.decay * before.w[i];
    volatile const float g = scaled + decayed;
    volatile const float carried_m = factors.beta1 * before.m[i];
    volatile const float new_m = factors.rest1 * g;
    volatile const float m = carried_m + new_m;
    volatile const float squared = g * g;
    volatile const float carried_v = factors.beta2 * before.v[i];
    volatile const float new_v = factors.rest2 * squared;
    volatile const float v = carried_v + new_v;
    volatile const float corrected = std::sqrt(v) * factors.correction;
    volatile const float length = corrected + factors.epsilon;
    volatile const float direction = m / length;
    volatile const float shrunk = factors.shrink * before.w[i];
    volatile const float change = factors.rate * direction;
    expected[i] = shrunk - change;
  }

  arrays.run(*runnable_kernels().back());

  EXPECT_THAT(arrays.w, ContainerEq(expected));
}

TEST(AdamTest, RefusesWhatMakesNoSense) {
  const auto adam = make_adam(1);
  std::vector<float> w(1);
  EXPECT_THROW((void)make_adam(1, {.beta1 = 1.0}), std::invalid_argument);
  EXPECT_THROW((void)make_adam(1, {.beta2 = -0.1}), std::invalid_argument);
  EXPECT_THROW((void)make_adamw(1, {.epsilon = -1.0}), std::invalid_argument);
  EXPECT_THROW((void)make_adamw(1, {.weight_decay = std::nan("")}), std::invalid_argument);
  EXPECT_THROW(adam->update(0, w, std::vector<float>(1), {1.0F, 0.1, -1}), std::invalid_argument);
  EXPECT_THROW(adam->restore(make_adamw(1)->save()), std::invalid_argument);
}

// LARS: the ratio of each array of weights, and that whole arrays reach it.

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
  constexpr std::size_t count = 300'000;
  const LarsOptions options{.weight_decay = 0.1F, .weights = {{10, 200'000}, {200'020, 90'000}}};
  const std::vector<float> g = random_values(count, 2);
  std::vector<float> alone = random_values(count, 1);
  std::vector<float> shared = alone;
  rondo::test::ThreadTeam team(3);

  make_lars(count, options)->update(0, alone, g, {0.5F, 0.1});
  make_lars(count, options, &team)->update(0, shared, g, {0.5F, 0.1});

  EXPECT_THAT(shared, ContainerEq(alone));
}

// Long layers are updated in parts by optimizers that allow it.
TEST(LarsTest, SynchronousUpdatesGiveItWholeLayers) {
  constexpr std::size_t layer = 600'000;
  const LarsOptions options{.weights = {{0, layer}}};
  const std::vector<float> begin = random_values(layer + 3, 1);
  const std::vector<float> g = random_values(layer + 3, 2);
  std::vector<float> expected = begin;
  make_lars(begin.size(), options)->update(0, expected, g, {1.0F, 0.1});
  rondo::test::World{1}.run([&](transport::World& world) {
    test::Arrays arrays(world, {layer, 3});
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
}  // namespace rondo::sync::optimizer_formulas_test

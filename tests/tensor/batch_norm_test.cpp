// Batch norm against its formulas, on one rank and with the statistics of several.

#include <barrier>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <thread>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/tensor/batch_norm.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/kernel_memory.hpp>
#include <rondo/tensor/tensor.hpp>

#include "data.hpp"
#include "reference.hpp"

namespace rondo::tensor::batch_norm_test {
namespace {

using test::normal_tensor;
using test::normal_values;
using test::relative_distance;
using testing::Each;
using testing::ElementsAreArray;

// Batch norm (+ residual) (+ ReLU) against plain loops in double.

// The rounding of fp32 arithmetic with double sums, for a mean of 0.5 and a deviation of 2.
constexpr double rounding = 2e-6;

// One layer, its data, and its results.
struct Trial {
  Trial(const BatchNormSpec& given, int threads, float mean = 0.5F, float deviation = 2.0F)
      : spec(given),
        engine(threads),
        layer(engine, spec),
        x(normal_tensor(spec.input, 1, mean, deviation)),
        residual(normal_tensor(spec.residual ? spec.input : Shape{}, 2)),
        dy(normal_tensor(spec.input, 3)),
        scale(normal_values(spec.input.c, 4, 1.0F, 0.3F)),
        shift(normal_values(spec.input.c, 5)),
        running_mean(normal_values(spec.input.c, 6)),
        running_variance(normal_values(spec.input.c, 7, 2.0F, 0.1F)),
        y(spec.input),
        dx(spec.input),
        dscale(scale.size(), -1.0F),
        dshift(scale.size(), -1.0F) {}

  [[nodiscard]] BatchNormParameters p() const { return {scale, shift}; }

  void forward() {
    layer.forward_training(x.view(), residual.view(), p(), running_mean, running_variance,
                           y.view());
  }
  void backward() { layer.backward(x.view(), y.view(), p(), dy.view(), dx.view(), dscale, dshift); }

  BatchNormSpec spec;
  Engine engine;
  BatchNorm layer;
  Tensor x, residual, dy;
  std::vector<float> scale, shift, running_mean, running_variance;
  Tensor y, dx;
  std::vector<float> dscale, dshift;
};

// Channels, activation, residual, threads.
class BatchNormTest
    : public testing::TestWithParam<std::tuple<std::int64_t, Activation, bool, int>> {
 protected:
  [[nodiscard]] static BatchNormSpec spec() {
    const auto [channels, activation, residual, threads] = GetParam();
    return {.input = {3, 7, 5, channels}, .activation = activation, .residual = residual};
  }
  [[nodiscard]] static int threads() { return std::get<3>(GetParam()); }
};

TEST_P(BatchNormTest, ForwardEqualsPlainLoops) {
  Trial trial(spec(), threads());
  trial.forward();
  const auto expected = reference::batch_norm(trial.spec, trial.x, trial.residual, trial.p(),
                                              reference::moments(trial.x));
  EXPECT_LT(relative_distance(trial.y.span(), expected.span()), rounding);
}

TEST_P(BatchNormTest, RunningValuesMoveTowardsTheUnbiasedBatch) {
  Trial trial(spec(), threads());
  const auto old_mean = trial.running_mean;
  const auto old_variance = trial.running_variance;
  trial.forward();
  const auto by = reference::moments(trial.x);
  constexpr double samples = 3 * 7 * 5;
  for (std::size_t c = 0; c < old_mean.size(); ++c) {
    EXPECT_NEAR(trial.running_mean[c], 0.9 * old_mean[c] + 0.1 * by.mean[c], 1e-6);
    EXPECT_NEAR(trial.running_variance[c],
                0.9 * old_variance[c] + 0.1 * by.variance[c] * samples / (samples - 1), 1e-6);
  }
}

TEST_P(BatchNormTest, BackwardEqualsPlainLoops) {
  Trial trial(spec(), threads());
  trial.forward();
  const auto expected =
      reference::batch_norm_backward(trial.spec, trial.x, trial.y, trial.p(), trial.dy);
  trial.backward();
  EXPECT_LT(relative_distance(trial.dx.span(), expected.x.span()), rounding);
  EXPECT_LT(relative_distance(trial.dscale, expected.scale), rounding);
  EXPECT_LT(relative_distance(trial.dshift, expected.shift), rounding);
  if (trial.spec.residual) {
    EXPECT_THAT(trial.dy.span(), ElementsAreArray(expected.residual.span()));
  }
}

TEST_P(BatchNormTest, BackwardAddsAnotherReadersGradient) {
  Trial trial(spec(), threads());
  Trial summed(spec(), threads());
  const Tensor also = normal_tensor(trial.spec.input, 8);
  for (std::size_t i = 0; i < also.span().size(); ++i) summed.dy.span()[i] += also.span()[i];
  trial.forward();
  summed.forward();
  summed.backward();
  trial.layer.backward(trial.x.view(), trial.y.view(), trial.p(), trial.dy.view(), trial.dx.view(),
                       trial.dscale, trial.dshift, also.view());
  EXPECT_THAT(trial.dx.span(), ElementsAreArray(summed.dx.span()));
  EXPECT_EQ(trial.dscale, summed.dscale);
  EXPECT_EQ(trial.dshift, summed.dshift);
  if (trial.spec.residual) {
    EXPECT_THAT(trial.dy.span(), ElementsAreArray(summed.dy.span()));
  }
}

TEST_P(BatchNormTest, InferenceUsesTheRunningValues) {
  Trial trial(spec(), threads());
  trial.layer.forward_inference(trial.x.view(), trial.residual.view(), trial.p(),
                                trial.running_mean, trial.running_variance, trial.y.view());
  const reference::Moments by{{trial.running_mean.begin(), trial.running_mean.end()},
                              {trial.running_variance.begin(), trial.running_variance.end()}};
  const auto expected = reference::batch_norm(trial.spec, trial.x, trial.residual, trial.p(), by);
  EXPECT_LT(relative_distance(trial.y.span(), expected.span()), rounding);
}

INSTANTIATE_TEST_SUITE_P(Channels, BatchNormTest,
                         testing::Combine(testing::Values(1, 3, 6, 16, 17, 24, 32, 64, 100, 128),
                                          testing::Values(Activation::none, Activation::relu),
                                          testing::Bool(), testing::Values(1, 3)));

TEST(BatchNormAccuracyTest, ALargeMeanBesideASmallDeviationDoesNotCancel) {
  Trial trial({.input = {8, 16, 16, 16}, .activation = Activation::none}, 1, 1000.0F, 0.1F);
  trial.forward();
  const auto expected = reference::batch_norm(trial.spec, trial.x, trial.residual, trial.p(),
                                              reference::moments(trial.x));
  // The values themselves are rounded to 6e-5, which is 6e-4 of their deviation.
  constexpr double rounding_of_the_mean = 1e-3;
  EXPECT_LT(relative_distance(trial.y.span(), expected.span()), rounding_of_the_mean);
}

TEST(BatchNormAccuracyTest, AConstantChannelHasNoVariance) {
  Trial trial({.input = {2, 9, 9, 5}, .activation = Activation::none}, 1, 3.3F, 0.0F);
  trial.forward();
  for (std::size_t i = 0; i < trial.y.span().size(); ++i) {
    EXPECT_EQ(trial.y.span()[i], trial.shift[i % 5]);
  }
}

TEST(BatchNormAccuracyTest, NotANumberIsPassedOn) {
  Trial trial({.input = {1, 4, 4, 16}}, 1);
  trial.x.span()[16 * 5 + 2] = std::numeric_limits<float>::quiet_NaN();
  trial.forward();
  for (std::size_t i = 0; i < trial.y.span().size(); ++i) {
    EXPECT_EQ(std::isnan(trial.y.span()[i]), i % 16 == 2) << i;
  }
}

TEST(BatchNormEdgeTest, AnEmptyBatchLeavesZeroGradientsAndTheRunningValues) {
  Trial trial({.input = {0, 4, 4, 16}, .residual = true}, 2);
  const auto mean = trial.running_mean;
  const auto variance = trial.running_variance;
  trial.forward();
  trial.backward();
  EXPECT_EQ(trial.running_mean, mean);
  EXPECT_EQ(trial.running_variance, variance);
  EXPECT_THAT(trial.dscale, Each(0.0F));
  EXPECT_THAT(trial.dshift, Each(0.0F));
}

TEST(BatchNormEdgeTest, FewerImagesThanTheSpecAreAllowed) {
  const BatchNormSpec spec{.input = {5, 4, 4, 16}};
  Trial trial(spec, 1);
  Trial two({.input = spec.input.with_n(2)}, 1);
  std::ranges::copy(trial.x.span().first(two.x.span().size()), two.x.span().begin());
  two.forward();
  trial.layer.forward_training(trial.x.first(2), {}, trial.p(), trial.running_mean,
                               trial.running_variance, trial.y.first(2));
  EXPECT_THAT(trial.y.span().first(two.y.span().size()), ElementsAreArray(two.y.span()));
}

TEST(BatchNormEdgeTest, BackwardMayOverwriteItsInput) {
  const BatchNormSpec spec{.input = {4, 6, 6, 32}};
  Trial apart(spec, 1);
  apart.forward();
  apart.backward();
  Trial in_place(spec, 1);
  in_place.forward();
  in_place.layer.backward(in_place.x.view(), in_place.y.view(), in_place.p(), in_place.dy.view(),
                          in_place.dy.view(), in_place.dscale, in_place.dshift);
  EXPECT_THAT(in_place.dy.span(), ElementsAreArray(apart.dx.span()));
}

TEST(BatchNormEdgeTest, RefusesNoChannelsAlsoWhereItsMemoryIsAskedFor) {
  Engine engine;
  const BatchNormSpec spec{.input = {8, 4, 4, 0}};
  EXPECT_THROW(BatchNorm(engine, spec), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(memory_of(engine, spec)), std::invalid_argument);
  // A planner asks about parts without rows, too.
  EXPECT_EQ(memory_of(engine, BatchNormSpec{.input = {8, 0, 4, 16}}).own,
            memory_of(engine, BatchNormSpec{.input = {8, 4, 4, 16}}).own);
}

TEST(BatchNormEdgeTest, RefusesAnotherShape) {
  Trial trial({.input = {2, 4, 4, 16}}, 1);
  Tensor other({2, 4, 4, 8});
  EXPECT_THROW(trial.layer.forward_training(other.view(), {}, trial.p(), trial.running_mean,
                                            trial.running_variance, trial.y.view()),
               std::invalid_argument);
  EXPECT_THROW(Trial({.input = {2, 0, 4, 16}}, 1), std::invalid_argument);
}

// Batch norm whose statistics are those of several ranks: threads, each with some of the images.

/// Sums numbers over threads; sum() returns on all of them.
class ThreadSum {
 public:
  explicit ThreadSum(std::ptrdiff_t threads) : barrier_(threads) {}

  void sum(std::size_t rank, std::span<double> numbers) {
    if (rank == 0) total_.assign(numbers.size(), 0.0);
    barrier_.arrive_and_wait();
    for (std::size_t turn = 0; turn < ranks; ++turn) {
      if (turn == rank) add(numbers);
      barrier_.arrive_and_wait();
    }
    std::ranges::copy(total_, numbers.begin());
    barrier_.arrive_and_wait();
  }

  static constexpr std::size_t ranks = 3;

 private:
  void add(std::span<const double> numbers) {
    for (std::size_t i = 0; i < numbers.size(); ++i) total_[i] += numbers[i];
  }

  std::barrier<> barrier_;
  std::vector<double> total_ = {};
};

/// A layer and its arrays for the images [first, last) of a batch.
struct Rank {
  Rank(BatchNormSpec spec, const Tensor& all_x, const Tensor& all_dy, std::int64_t first,
       std::int64_t last, SumOverRanks sum = {})
      : x(images(all_x, first, last)),
        residual(spec.residual ? images(all_dy, first, last) : Tensor()),
        dy(images(all_dy, first, last)),
        y(x.shape()),
        dx(x.shape()),
        scale(normal_values(x.shape().c, 4, 1.0F, 0.3F)),
        shift(normal_values(x.shape().c, 5)),
        mean(scale.size(), 0.0F),
        variance(scale.size(), 1.0F),
        scale_gradient(scale.size(), -1.0F),
        shift_gradient(scale.size(), -1.0F),
        layer(engine, with_images(spec, last - first), std::move(sum)) {}

  void forward() {
    layer.forward_training(x.view(), residual.view(), {scale, shift}, mean, variance, y.view());
  }
  void backward() {
    layer.backward(x.view(), y.view(), {scale, shift}, dy.view(), dx.view(), scale_gradient,
                   shift_gradient);
  }

  static BatchNormSpec with_images(BatchNormSpec spec, std::int64_t count) {
    spec.input.n = count;
    return spec;
  }
  static Tensor images(const Tensor& all, std::int64_t first, std::int64_t last) {
    Tensor some(all.shape().with_n(last - first));
    std::copy_n(all.data() + first * all.shape().image(), some.shape().size(), some.data());
    return some;
  }

  Engine engine;
  Tensor x, residual, dy, y, dx;
  std::vector<float> scale, shift, mean, variance, scale_gradient, shift_gradient;
  BatchNorm layer;
};

/// Three ranks with 2, 0 and 3 of five images, after forward and backward; and one with all.
struct SharedTrial {
  explicit SharedTrial(BatchNormSpec spec, float mean = 0.5F, float deviation = 2.0F)
      : x(normal_tensor(spec.input, 1, mean, deviation)),
        dy(normal_tensor(spec.input, 2)),
        whole(spec, x, dy, 0, 5) {
    whole.forward();
    whole.backward();
    ThreadSum thread_sum(ThreadSum::ranks);
    const std::int64_t cuts[] = {0, 2, 2, 5};
    for (std::size_t r = 0; r < ThreadSum::ranks; ++r) {
      parts.push_back(std::make_unique<Rank>(
          spec, x, dy, cuts[r], cuts[r + 1],
          [&thread_sum, r](std::span<double> numbers) { thread_sum.sum(r, numbers); }));
    }
    std::vector<std::thread> threads;
    for (const auto& part : parts) {
      threads.emplace_back([&part] {
        part->forward();
        part->backward();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  /// One array of all parts, put together.
  [[nodiscard]] std::vector<float> all(Tensor Rank::* array) const {
    std::vector<float> values;
    for (const auto& part : parts) {
      const auto own = ((*part).*array).span();
      values.insert(values.end(), own.begin(), own.end());
    }
    return values;
  }
  /// The sum over the parts.
  [[nodiscard]] std::vector<float> sum(std::vector<float> Rank::* array) const {
    std::vector<float> values(((*parts[0]).*array).size());
    for (const auto& part : parts) {
      for (std::size_t i = 0; i < values.size(); ++i) values[i] += ((*part).*array)[i];
    }
    return values;
  }

  Tensor x;
  Tensor dy;
  Rank whole;
  std::vector<std::unique_ptr<Rank>> parts = {};
};

class SharedBatchNormTest : public testing::TestWithParam<std::tuple<Activation, bool>> {
 protected:
  [[nodiscard]] static BatchNormSpec spec() {
    return {.input = {5, 4, 3, 19},
            .activation = std::get<0>(GetParam()),
            .residual = std::get<1>(GetParam())};
  }
};

TEST_P(SharedBatchNormTest, OutputAndInputGradientsAreThoseOfAllImagesTogether) {
  const SharedTrial trial(spec());
  EXPECT_LT(relative_distance(trial.all(&Rank::y), trial.whole.y.span()), rounding);
  EXPECT_LT(relative_distance(trial.all(&Rank::dx), trial.whole.dx.span()), rounding);
}

TEST_P(SharedBatchNormTest, GradientsOfScaleAndShiftAreEachRanksOwn) {
  const SharedTrial trial(spec());
  EXPECT_LT(relative_distance(trial.sum(&Rank::scale_gradient), trial.whole.scale_gradient),
            rounding);
  EXPECT_LT(relative_distance(trial.sum(&Rank::shift_gradient), trial.whole.shift_gradient),
            rounding);
  EXPECT_THAT(trial.parts[1]->scale_gradient, Each(0.0F));
  EXPECT_THAT(trial.parts[1]->shift_gradient, Each(0.0F));
}

TEST_P(SharedBatchNormTest, RunningValuesStayEqualOnAllRanks) {
  const SharedTrial trial(spec());
  for (const auto& part : trial.parts) {
    EXPECT_EQ(part->mean, trial.parts[0]->mean);
    EXPECT_EQ(part->variance, trial.parts[0]->variance);
  }
  EXPECT_LT(relative_distance(trial.parts[1]->mean, trial.whole.mean), rounding);
  EXPECT_LT(relative_distance(trial.parts[1]->variance, trial.whole.variance), rounding);
}

INSTANTIATE_TEST_SUITE_P(Kinds, SharedBatchNormTest,
                         testing::Combine(testing::Values(Activation::none, Activation::relu),
                                          testing::Bool()));

TEST(SharedBatchNormAccuracyTest, ALargeMeanBesideASmallDeviationDoesNotCancel) {
  const SharedTrial trial({.input = {5, 8, 8, 16}, .activation = Activation::none}, 1000.0F, 0.1F);
  // The values themselves are rounded to 6e-5, which is 6e-4 of their deviation.
  constexpr double rounding_of_the_mean = 1e-3;
  EXPECT_LT(relative_distance(trial.all(&Rank::y), trial.whole.y.span()), rounding_of_the_mean);
}

TEST(SharedBatchNormCallsTest, OnceInTrainingAndOnceInBackward) {
  const BatchNormSpec spec{.input = {2, 3, 3, 7}};
  const Tensor x = normal_tensor(spec.input, 1);
  const Tensor dy = normal_tensor(spec.input, 2);
  std::vector<std::size_t> calls;
  Rank rank(spec, x, dy, 0, 2, [&](std::span<double> numbers) { calls.push_back(numbers.size()); });

  rank.forward();
  rank.layer.forward_inference(rank.x.view(), {}, {rank.scale, rank.shift}, rank.mean,
                               rank.variance, rank.y.view());
  rank.backward();

  EXPECT_THAT(calls, testing::ElementsAre(1 + 2 * 7, 2 * 7));
}

TEST(SharedBatchNormCallsTest, WhereNoRankHasImagesNothingMoves) {
  const BatchNormSpec spec{.input = {2, 3, 3, 7}};
  const Tensor x = normal_tensor(spec.input, 1);
  int calls = 0;
  Rank rank(spec, x, x, 0, 0, [&](std::span<double> /*numbers*/) { ++calls; });

  rank.forward();
  rank.backward();

  EXPECT_EQ(calls, 2);
  EXPECT_THAT(rank.mean, Each(0.0F));
  EXPECT_THAT(rank.variance, Each(1.0F));
  EXPECT_THAT(rank.scale_gradient, Each(0.0F));
}

}  // namespace
}  // namespace rondo::tensor::batch_norm_test

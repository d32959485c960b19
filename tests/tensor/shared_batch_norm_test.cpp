// Batch norm whose statistics are those of several ranks: threads, each with some of the images.

#include <barrier>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/tensor/batch_norm.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/tensor.hpp>

#include "data.hpp"
#include "nearness.hpp"

namespace rondo::tensor::shared_batch_norm_test {
namespace {

using test::normal_tensor;
using test::normal_values;
using test::relative_distance;
using testing::Each;
using testing::ElementsAre;

constexpr double rounding = 2e-6;

/// Sums numbers over threads; sum() returns on all of them.
class Meeting {
 public:
  explicit Meeting(std::ptrdiff_t threads) : barrier_(threads) {}

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
struct Trial {
  explicit Trial(BatchNormSpec spec, float mean = 0.5F, float deviation = 2.0F)
      : x(normal_tensor(spec.input, 1, mean, deviation)),
        dy(normal_tensor(spec.input, 2)),
        whole(spec, x, dy, 0, 5) {
    whole.forward();
    whole.backward();
    Meeting meeting(Meeting::ranks);
    const std::int64_t cuts[] = {0, 2, 2, 5};
    for (std::size_t r = 0; r < Meeting::ranks; ++r) {
      parts.push_back(std::make_unique<Rank>(
          spec, x, dy, cuts[r], cuts[r + 1],
          [&meeting, r](std::span<double> numbers) { meeting.sum(r, numbers); }));
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
  const Trial trial(spec());
  EXPECT_LT(relative_distance(trial.all(&Rank::y), trial.whole.y.span()), rounding);
  EXPECT_LT(relative_distance(trial.all(&Rank::dx), trial.whole.dx.span()), rounding);
}

TEST_P(SharedBatchNormTest, GradientsOfScaleAndShiftAreEachRanksOwn) {
  const Trial trial(spec());
  EXPECT_LT(relative_distance(trial.sum(&Rank::scale_gradient), trial.whole.scale_gradient),
            rounding);
  EXPECT_LT(relative_distance(trial.sum(&Rank::shift_gradient), trial.whole.shift_gradient),
            rounding);
  EXPECT_THAT(trial.parts[1]->scale_gradient, Each(0.0F));
  EXPECT_THAT(trial.parts[1]->shift_gradient, Each(0.0F));
}

TEST_P(SharedBatchNormTest, RunningValuesStayEqualOnAllRanks) {
  const Trial trial(spec());
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
  const Trial trial({.input = {5, 8, 8, 16}, .activation = Activation::none}, 1000.0F, 0.1F);
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

  EXPECT_THAT(calls, ElementsAre(1 + 2 * 7, 2 * 7));
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
}  // namespace rondo::tensor::shared_batch_norm_test

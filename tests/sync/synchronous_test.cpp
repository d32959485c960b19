// Synchronous SGD over ranks that are threads: what it computes, and what it counts.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/synchronous.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/element.hpp>
#include <rondo/transport/world.hpp>

#include "support/world.hpp"
#include "sync/arrays.hpp"

namespace rondo::sync::synchronous_test {
namespace {

using rondo::test::RanksTest;
using rondo::test::World;
using test::Arrays;
using testing::Each;
using testing::ElementsAre;
using testing::ElementsAreArray;

constexpr int steps = 4;
const std::vector<std::size_t> layer_sizes{40, 3, 0, 700, 129, 1};
const SynchronousOptions small_buckets{.bucket_bytes = 512, .last_bucket_bytes = 64};
const SgdOptions sgd{.momentum = 0.5F, .weight_decay = 0.25F};

/// The gradient of a rank's share: small whole numbers, so that sums are exact in any order.
float gradient_of(int sample, int step, std::size_t element) {
  return static_cast<float>((sample * 7 + step * 3 + static_cast<int>(element % 11)) % 13 - 6);
}

Step step_of(int index, std::size_t local, std::size_t global) {
  return {.index = index, .local_samples = local, .global_samples = global, .learning_rate = 0.125};
}

/// Trains on `samples` samples that are shared among the ranks; returns the parameters.
std::vector<float> train(transport::World& world, int samples) {
  Arrays arrays(world, layer_sizes);
  std::ranges::fill(arrays.parameters, 1.0F);
  const auto scheme =
      make_synchronous(arrays.replica(), make_sgd(arrays.parameters.size(), sgd), small_buckets);
  const int first = samples * world.rank() / world.size();
  const int last = samples * (world.rank() + 1) / world.size();
  for (int step = 0; step < steps; ++step) {
    const Step shared =
        step_of(step, static_cast<std::size_t>(last - first), static_cast<std::size_t>(samples));
    test::iterate(*scheme, arrays, shared, [&](std::size_t i, float) {
      float sum = 0.0F;
      for (int s = first; s < last; ++s) sum += gradient_of(s, step, i);
      return sum;
    });
  }
  return {arrays.parameters.begin(), arrays.parameters.end()};
}

/// Plain SGD, worked out by a scalar loop.
std::vector<float> expected(int samples) {
  const std::size_t size = std::accumulate(layer_sizes.begin(), layer_sizes.end(), std::size_t{0});
  std::vector<float> w(size, 1.0F);
  std::vector<float> v(size, 0.0F);
  for (int step = 0; step < steps; ++step) {
    for (std::size_t i = 0; i < size; ++i) {
      float sum = 0.0F;
      for (int s = 0; s < samples; ++s) sum += gradient_of(s, step, i);
      const float scaled = sum * static_cast<float>(1.0 / samples);
      const float decayed = 0.25F * w[i];
      const float carried = 0.5F * v[i];
      v[i] = carried + (scaled + decayed);
      const float change = 0.125F * v[i];
      w[i] -= change;
    }
  }
  return w;
}

class SynchronousTest : public RanksTest {};

// 8 samples divide by 4 into exact values; 7 leave ranks with unequal shares, 2 some with none.
TEST_P(SynchronousTest, EqualsPlainSgdOverTheWholeBatch) {
  World{ranks()}.run([](transport::World& world) {
    for (const int samples : {8, 7, 2}) {
      EXPECT_THAT(train(world, samples), ElementsAreArray(expected(samples)));
    }
  });
}

TEST_P(SynchronousTest, ReducesALayerOverItsOwnGroup) {
  World{ranks()}.run([](transport::World& world) {
    transport::Communicator alone = world.communicator().split(world.rank());
    Arrays arrays(world, {5, 5});
    Replica replica = arrays.replica();
    replica.layers[0].groups.slice = &alone;
    const auto scheme = make_synchronous(replica, make_sgd(10, {.momentum = 0.0F}));

    test::iterate(*scheme, arrays,
                  {.index = 0, .local_samples = 1, .global_samples = 1, .learning_rate = 1.0},
                  [](std::size_t, float) { return 1.0F; });

    EXPECT_THAT(std::span(arrays.parameters).first(5), Each(-1.0F));
    EXPECT_THAT(std::span(arrays.parameters).last(5), Each(static_cast<float>(-world.size())));
  });
}

TEST_P(SynchronousTest, CopiesForEvaluationWithTheMeanOfTheStatistics) {
  World{ranks()}.run([](transport::World& world) {
    Arrays arrays(world, {5}, 3);
    std::ranges::fill(arrays.parameters, 2.0F);
    std::ranges::fill(arrays.statistics, static_cast<float>(world.rank()));
    const auto scheme = make_synchronous(arrays.replica(), make_sgd(5, {}));
    std::vector<float> parameters(5);
    std::vector<float> statistics(3);

    scheme->copy_for_evaluation(parameters, statistics);

    EXPECT_THAT(parameters, Each(2.0F));
    EXPECT_THAT(statistics, Each(static_cast<float>(world.size() - 1) / 2.0F));
    EXPECT_THAT(arrays.parameters, Each(2.0F));
    EXPECT_THAT(arrays.statistics, Each(static_cast<float>(world.rank())));
    EXPECT_EQ(scheme->counters().evaluation_reductions, world.size() == 1 ? 0U : 1U);
    EXPECT_EQ(scheme->counters().global_reductions, 0U);
  });
}

// Gradients sent as bf16.

SynchronousOptions in_bf16() {
  SynchronousOptions options = small_buckets;
  options.gradient_type = transport::ElementType::bf16;
  return options;
}

/// The parameters after a step of plain SGD at rate 0.125 from 0, by gradients `of` rank and
/// element.
template <typename Gradient>
std::vector<float> one_step(transport::World& world, const SynchronousOptions& options,
                            Gradient of) {
  Arrays arrays(world, layer_sizes);
  const auto scheme =
      make_synchronous(arrays.replica(), make_sgd(arrays.parameters.size(), {}), options);
  test::iterate(*scheme, arrays, step_of(0, 1, 1),
                [&](std::size_t i, float) { return of(world.rank(), i); });
  return {arrays.parameters.begin(), arrays.parameters.end()};
}

/// Between 1 and 3, and of more bits than bf16 has.
float long_gradient(int rank, std::size_t i) {
  return 1.0F + static_cast<float>((i * 37 + static_cast<std::size_t>(rank) * 11) % 101) / 97.0F;
}

// Whole numbers up to 256 are numbers of bf16; sums are at most 4 x 15.
TEST_P(SynchronousTest, SumsExactlyWhatBf16Holds) {
  World{ranks()}.run([](transport::World& world) {
    const auto gradient = [](int rank, std::size_t i) {
      return static_cast<float>((static_cast<int>(i) * 5 + rank * 3) % 31 - 15);
    };
    EXPECT_THAT(one_step(world, in_bf16(), gradient),
                ElementsAreArray(one_step(world, small_buckets, gradient)));
  });
}

// Positive gradients: each is rounded by at most 2^-8 of itself, so their sum by at most 2^-8 of
// itself, and then it is rounded likewise. With one rank nothing is sent, and so nothing rounded.
TEST_P(SynchronousTest, RoundsOtherGradientsAndSumsOnce) {
  const double tolerance = 2.0 / 256.0 + 1e-4;
  World{ranks()}.run([&](transport::World& world) {
    const std::vector<float> exact = one_step(world, small_buckets, long_gradient);
    const std::vector<float> rounded = one_step(world, in_bf16(), long_gradient);
    for (std::size_t i = 0; i < exact.size(); ++i) {
      ASSERT_NEAR(rounded[i] / exact[i], 1.0, tolerance) << "element " << i;
    }
    EXPECT_EQ(rounded == exact, world.size() == 1);
  });
}

TEST_P(SynchronousTest, NanAndInfinityGetThroughInBf16) {
  World{ranks()}.run([](transport::World& world) {
    const auto gradient = [](int rank, std::size_t i) {
      constexpr float infinity = std::numeric_limits<float>::infinity();
      if (rank > 0) return 1.0F;
      return i % 2 == 0 ? std::numeric_limits<float>::quiet_NaN() : infinity;
    };
    const std::vector<float> parameters = one_step(world, in_bf16(), gradient);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      ASSERT_TRUE(i % 2 == 0 ? std::isnan(parameters[i]) : std::isinf(parameters[i])) << i;
    }
  });
}

// The norm is that of the widened sums: 3-4-5, all of which bf16 holds.
TEST_P(SynchronousTest, ClipsByTheNormOfWhatWasReducedInBf16) {
  World{ranks()}.run([](transport::World& world) {
    SynchronousOptions options = small_buckets;
    options.clip_norm = 1.0;
    const auto gradient = [&](int rank, std::size_t i) {
      if (rank > 0 || i > 1) return 0.0F;
      return i == 0 ? 3.0F : 4.0F;
    };
    const std::vector<float> full = one_step(world, options, gradient);
    options.gradient_type = transport::ElementType::bf16;
    EXPECT_THAT(one_step(world, options, gradient), ElementsAreArray(full));
  });
}

INSTANTIATE_TEST_SUITE_P(Threads, SynchronousTest, testing::Values(1, 2, 3, 4));

// Synchronous SGD whose gradient is clipped by its global norm.

/// One step from 0 at rate 1, of one sample per rank whose gradient is the same on all ranks; the
/// result is minus the gradient that was used. Every layer is a bucket of its own.
std::vector<float> step(transport::World& world, const std::vector<float>& gradient,
                        double clip_norm) {
  Arrays arrays(world, std::vector<std::size_t>(gradient.size(), 1));
  const auto scheme =
      make_synchronous(arrays.replica(), make_sgd(gradient.size(), {.momentum = 0.0F}),
                       {.bucket_bytes = 0, .last_bucket_bytes = 0, .clip_norm = clip_norm});
  test::iterate(*scheme, arrays, test::step_of(world, 0, {.rate = 1.0}),
                [&](std::size_t i, float) { return gradient[i]; });
  return {arrays.parameters.begin(), arrays.parameters.end()};
}

class SynchronousClipTest : public RanksTest {};

// Ranks whose number is a power of two: the mean is exact.
TEST_P(SynchronousClipTest, ScalesTheMeanGradientToTheNorm) {
  World{ranks()}.run([](transport::World& world) {
    EXPECT_THAT(step(world, {6.0F, 0.0F, 8.0F}, 5.0), ElementsAre(-3.0F, 0.0F, -4.0F));
  });
}

TEST_P(SynchronousClipTest, LeavesAGradientThatIsShortEnoughAsItIs) {
  World{ranks()}.run([](transport::World& world) {
    const std::vector<float> gradient{0.3F, -0.7F, 0.1F};

    EXPECT_THAT(step(world, gradient, 100.0), ElementsAreArray(step(world, gradient, 0.0)));
    EXPECT_THAT(step(world, {3.0F, 4.0F}, 5.0), ElementsAre(-3.0F, -4.0F));
  });
}

INSTANTIATE_TEST_SUITE_P(Threads, SynchronousClipTest, testing::Values(1, 2, 4));

// Two replicas of two ranks: layer 0 is held by all, layers 1 and 2 are the two halves of one.
TEST(SynchronousClipSlicesTest, ClipsByTheNormOfTheWholeModel) {
  World{4}.run([](transport::World& world) {
    const int position = world.rank() % 2;
    transport::Communicator group = world.communicator().split(world.rank() / 2, position);
    transport::Communicator across = world.communicator().split(position, world.rank());
    Arrays arrays(world, {1, 2});
    Replica replica = arrays.replica();
    replica.layers[1].groups = {nullptr, &across, &across};
    replica.slices.over = &group;
    replica.slices.counted = {{1, 2}};
    if (position == 0) replica.slices.counted = {{0, 3}};
    const auto scheme =
        make_synchronous(replica, make_sgd(3, {.momentum = 0.0F}), {.clip_norm = 3.5});
    // The mean over two samples is 4, (2, 2), (3, 4): its norm is 7. Layer 0 adds up over all
    // ranks.
    const std::vector<float> gradient =
        position == 0 ? std::vector{2.0F, 2.0F, 2.0F} : std::vector{2.0F, 3.0F, 4.0F};
    test::iterate(*scheme, arrays,
                  {.index = 0, .local_samples = 1, .global_samples = 2, .learning_rate = 1.0},
                  [&](std::size_t i, float) { return gradient[i]; });

    EXPECT_THAT(arrays.parameters, position == 0 ? ElementsAre(-2.0F, -1.0F, -1.0F)
                                                 : ElementsAre(-2.0F, -1.5F, -2.0F));
  });
}

}  // namespace
}  // namespace rondo::sync::synchronous_test

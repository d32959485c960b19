// Synchronous SGD whose gradient is clipped by its global norm.

#include <algorithm>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/synchronous.hpp>
#include <rondo/transport/communicator.hpp>

#include "support/world.hpp"
#include "sync/arrays.hpp"

namespace rondo::sync::synchronous_clip_test {
namespace {

using rondo::test::World;
using test::Arrays;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::ThrowsMessage;

/// One step from 0 at rate 1, of one sample per rank whose gradient is the same on all ranks; the
/// result is minus the gradient that was used. Every layer is a bucket of its own.
std::vector<float> step(transport::World& world, const std::vector<float>& gradient,
                        double clip_norm) {
  Arrays arrays(world, std::vector<std::size_t>(gradient.size(), 1));
  const auto scheme =
      make_synchronous(arrays.replica(), make_sgd(gradient.size(), {.momentum = 0.0F}),
                       {.bucket_bytes = 0, .last_bucket_bytes = 0, .clip_norm = clip_norm});
  scheme->begin({.index = 0,
                 .local_samples = 1,
                 .global_samples = static_cast<std::size_t>(world.size()),
                 .learning_rate = 1.0});
  std::ranges::copy(gradient, arrays.gradients.begin());
  for (std::size_t layer = arrays.layers(); layer-- > 0;) scheme->gradients_final(layer);
  scheme->finish();
  return {arrays.parameters.begin(), arrays.parameters.end()};
}

class SynchronousClipTest : public testing::TestWithParam<int> {};

// Ranks whose number is a power of two: the mean is exact.
TEST_P(SynchronousClipTest, ScalesTheMeanGradientToTheNorm) {
  World{GetParam()}.run([](transport::World& world) {
    EXPECT_THAT(step(world, {6.0F, 0.0F, 8.0F}, 5.0), ElementsAre(-3.0F, 0.0F, -4.0F));
  });
}

TEST_P(SynchronousClipTest, LeavesAGradientThatIsShortEnoughAsItIs) {
  World{GetParam()}.run([](transport::World& world) {
    const std::vector<float> gradient{0.3F, -0.7F, 0.1F};

    EXPECT_THAT(step(world, gradient, 100.0), ElementsAreArray(step(world, gradient, 0.0)));
    EXPECT_THAT(step(world, {3.0F, 4.0F}, 5.0), ElementsAre(-3.0F, -4.0F));
  });
}

INSTANTIATE_TEST_SUITE_P(Threads, SynchronousClipTest, testing::Values(1, 2, 4));

TEST(SynchronousClipMisuseTest, RefusesANormThatIsNone) {
  World{1}.run([](transport::World& world) {
    EXPECT_THROW(step(world, {1.0F}, -1.0), std::invalid_argument);
    EXPECT_THROW(step(world, {1.0F}, std::numeric_limits<double>::quiet_NaN()),
                 std::invalid_argument);
  });
}

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
    scheme->begin({.index = 0, .local_samples = 1, .global_samples = 2, .learning_rate = 1.0});
    // The mean over two samples is 4, (2, 2), (3, 4): its norm is 7. Layer 0 adds up over all
    // ranks.
    arrays.gradients[0] = 2.0F;
    arrays.gradients[1] = position == 0 ? 2.0F : 3.0F;
    arrays.gradients[2] = position == 0 ? 2.0F : 4.0F;
    scheme->gradients_final(1);
    scheme->gradients_final(0);
    scheme->finish();

    EXPECT_THAT(arrays.parameters, position == 0 ? ElementsAre(-2.0F, -1.0F, -1.0F)
                                                 : ElementsAre(-2.0F, -1.5F, -2.0F));
  });
}

TEST(SynchronousClipMisuseTest, RefusesSlicesThatAreNotThere) {
  World{1}.run([](transport::World& world) {
    Arrays arrays(world, {5});
    for (const Slices::Part part : {Slices::Part{3, 3}, {6, 0}}) {
      Replica replica = arrays.replica();
      replica.slices = {&world.communicator(), {part}};

      EXPECT_THAT([&] { static_cast<void>(make_synchronous(replica, make_sgd(5, {}))); },
                  ThrowsMessage<std::invalid_argument>(HasSubstr("out of order or not there")));
    }
  });
}

TEST(SynchronousClipMisuseTest, RefusesLayersThatOtherRanksDoNotHold) {
  World{2}.run([](transport::World& world) {
    transport::Communicator alone = world.communicator().split(world.rank());
    Arrays arrays(world, {5, 5});
    Replica replica = arrays.replica();
    replica.layers[1].groups.slice = &alone;

    EXPECT_THAT(
        [&] { static_cast<void>(make_synchronous(replica, make_sgd(10, {}), {.clip_norm = 1.0})); },
        ThrowsMessage<std::invalid_argument>(HasSubstr("layer layer1 is sharded")));
  });
}

}  // namespace
}  // namespace rondo::sync::synchronous_clip_test

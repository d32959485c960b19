// Scalar products over a model whose slices lie on several ranks, and clipping by them.

#include "base/reductions.hpp"

#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "flat/flat.hpp"
#include "support/world.hpp"

namespace rondo::sync::model_sums_test {
namespace {

using rondo::test::Backend;
using rondo::test::World;
using testing::ElementsAre;

TEST(ModelSumsTest, EveryElementCountsOnce) {
  World{3}.run([](transport::World& world) {
    // Elements 0 and 1 are held by all, 2 ... 7 by two ranks, three by each; one holds none.
    const auto rank = static_cast<std::size_t>(world.rank());
    std::vector<float> values{1.0F, 2.0F};
    for (std::size_t i = 0; rank < 2 && i < 3; ++i) {
      values.push_back(static_cast<float>(3 + 3 * rank + i));
    }
    Replica replica{.world = &world};
    replica.slices.over = &world.communicator();
    if (rank == 0) replica.slices.counted = {{0, 2}, {2, 3}};
    if (rank == 1) replica.slices.counted = {{2, 3}};
    ModelSums sums(replica, 1);

    const std::vector<float> whole{1, 2, 3, 4, 5, 6, 7, 8};
    EXPECT_TRUE(sums.is_shared());
    EXPECT_EQ(sums.squared_norm(values), flat::dot(whole, whole));
  });
}

TEST(ModelSumsTest, APartOfTheArraysCountsAsTheWholeDoes) {
  World{1}.run([](transport::World& world) {
    Replica replica{.world = &world};
    replica.slices = {&world.communicator(), {{1, 2}, {5, 3}}};
    const ModelSums sums(replica, 1);
    const std::vector<float> a{1, 2, 4, 8};  // elements 2 ... 5

    EXPECT_EQ(sums.own_dot(a, a, 2), 1.0 + 64.0);
    EXPECT_EQ(sums.own_dot(a, a, 3), 4.0 * 4.0 + 8.0 * 8.0);
    EXPECT_EQ(sums.own_dot(a, a, 8), 0.0);
  });
}

// Replicas that lie on nodes in different ways: an allreduce adds up in other orders there.
TEST(ModelSumsTest, AllReplicasGetTheSameBits) {
  constexpr int positions = 3;
  World(Backend::hierarchy, 6).run([](transport::World& world) {
    const int position = world.rank() % positions;
    transport::Communicator group =
        world.communicator().split(world.rank() / positions, world.rank());
    Replica replica{.world = &world};
    replica.slices = {&group, {{0, 1}}};
    ModelSums sums(replica, 2);
    constexpr std::array<double, positions> parts{1.0, 1e-16, 1e-16};  // 1 + 1e-16 is 1
    const auto own = parts[static_cast<std::size_t>(position)];
    std::array both{own, -own};

    sums.add_up(both);

    EXPECT_THAT(both, ElementsAre(1.0, -1.0));
  });
}

TEST(ModelSumsTest, ARankAloneSendsNothing) {
  World{2}.run([](transport::World& world) {
    const Replica replica{.world = &world};
    ModelSums sums(replica, 1);
    const std::vector<float> values(static_cast<std::size_t>(1 + world.rank()), 2.0F);

    EXPECT_FALSE(sums.is_shared());
    EXPECT_EQ(sums.squared_norm(values), 4.0 * (1 + world.rank()));
  });
}

TEST(ClipTest, ShortensToTheLargestNorm) {
  // A gradient of norm 8, scaled by 1/2, has norm 4.
  EXPECT_EQ(clip_factor(64.0, 0.5, 1.0), 0.25);
  EXPECT_EQ(clip_factor(64.0, 0.5, 2.0), 0.5);
}

TEST(ClipTest, LeavesAShortGradientAsItIs) {
  EXPECT_EQ(clip_factor(64.0, 0.5, 4.0), 1.0);
  EXPECT_EQ(clip_factor(64.0, 0.5, 5.0), 1.0);
  EXPECT_EQ(clip_factor(0.0, 0.5, 5.0), 1.0);
}

TEST(ClipTest, ANormOfZeroClipsNothing) {
  EXPECT_EQ(clip_factor(1e300, 1.0, 0.0), 1.0);
  EXPECT_EQ(clip_factor(std::numeric_limits<double>::infinity(), 1.0, 0.0), 1.0);
}

TEST(ClipTest, DoesNotHideWhatIsNotANumber) { EXPECT_EQ(clip_factor(std::nan(""), 1.0, 1.0), 1.0); }

}  // namespace
}  // namespace rondo::sync::model_sums_test

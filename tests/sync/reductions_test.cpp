// How layers are cut into buckets, a pure function, tested over all small cases; sums over ranks.

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory_resource>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/element.hpp>
#include <rondo/transport/world.hpp>

#include "base/reductions.hpp"
#include "flat/flat.hpp"
#include "support/world.hpp"

namespace rondo::sync::reductions_test {
namespace {

using rondo::test::Backend;
using rondo::test::World;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::size_t word = sizeof(float);

/// Groups are compared and never used: any two addresses do.
transport::Communicator* group(int index) {
  static std::array<std::byte, 2> places{};
  return reinterpret_cast<transport::Communicator*>(&places.at(static_cast<std::size_t>(index)));
}

std::vector<Layer> layers_of(const std::vector<std::size_t>& sizes, unsigned groups = 0) {
  std::vector<Layer> layers;
  std::size_t offset = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const Groups of_layer{.slice = group((groups >> i & 1U) != 0 ? 1 : 0)};
    layers.push_back({"layer" + std::to_string(i), offset, sizes[i], of_layer});
    offset += sizes[i];
  }
  return layers;
}

/// The number of layers in each bucket, in the order of posting.
std::vector<std::size_t> counts(const std::vector<Bucket>& buckets) {
  std::vector<std::size_t> result;
  for (const Bucket& bucket : buckets) result.push_back(bucket.last_layer - bucket.first_layer);
  return result;
}

std::vector<std::size_t> plan(const std::vector<std::size_t>& sizes, const BucketLimits& limits) {
  return counts(plan_buckets(layers_of(sizes), limits));
}

TEST(BucketPlanTest, FillsBucketsFromTheOutputSide) {
  EXPECT_THAT(plan({}, {100, 10}), IsEmpty());
  EXPECT_THAT(plan({1, 1, 1, 1, 1}, {2 * word, 0}), ElementsAre(2, 2, 1));
  EXPECT_THAT(plan({1, 1, 1}, {0, 0}), ElementsAre(1, 1, 1)) << "a bucket for every layer";
  EXPECT_THAT(plan({5, 5, 5}, {1000 * word, 1000 * word}), ElementsAre(3));
  EXPECT_THAT(plan({1, 1, 9, 1, 1}, {4 * word, 0}), ElementsAre(2, 1, 2)) << "a large one alone";
  EXPECT_THAT(plan({1, 1, 2, 2, 2}, {100 * word, 3 * word}), ElementsAre(3, 2)) << "a small end";
}

// As the planner asks, without ranks.
TEST(BucketPlanTest, NeedsNoMoreThanSizesAndGroups) {
  const std::vector<LayerGradients> layers = {{.elements = 1},
                                              {.elements = 1},
                                              {.elements = 2},
                                              {.elements = 2, .group = 1},
                                              {.elements = 2, .group = 1}};
  const std::vector<LayerRange> buckets = plan_buckets(layers, BucketLimits::of(8 * word));
  std::vector<std::size_t> first;
  for (const LayerRange& bucket : buckets) first.push_back(bucket.first_layer);
  EXPECT_THAT(first, ElementsAre(3, 2, 0));
}

TEST(BucketPlanTest, TheLastBucketIsAQuarterOfTheOthers) {
  EXPECT_EQ(BucketLimits::of(1024).bytes, 1024);
  EXPECT_EQ(BucketLimits::of(1024).last_bytes, 256);
}

TEST(BucketPlanTest, NeverMixesGroups) {
  const auto buckets = plan_buckets(layers_of({1, 1, 1, 1}, 0b0110), {100 * word, 0});

  EXPECT_THAT(counts(buckets), ElementsAre(1, 2, 1));
  EXPECT_EQ(buckets[1].slice, group(1));
}

// Checks the promises of every plan, whatever the layers.
void check(const std::vector<Layer>& layers, const BucketLimits& limits) {
  const std::vector<Bucket> buckets = plan_buckets(layers, limits);
  std::size_t next = layers.size();  // layers [next, size) are covered
  for (const Bucket& bucket : buckets) {
    ASSERT_LT(bucket.first_layer, bucket.last_layer);
    ASSERT_EQ(bucket.last_layer, next) << "output side first, without gaps";
    next = bucket.first_layer;
    ASSERT_EQ(bucket.offset, layers[bucket.first_layer].offset);
    std::size_t size = 0;
    for (std::size_t i = bucket.first_layer; i < bucket.last_layer; ++i) {
      ASSERT_EQ(layers[i].groups.slice, bucket.slice);
      size += layers[i].size;
    }
    ASSERT_EQ(bucket.size, size);
    const bool several = bucket.last_layer - bucket.first_layer > 1;
    const std::size_t before_last = size - layers[bucket.first_layer].size;
    ASSERT_TRUE(!several || before_last * word < limits.bytes) << "closed when full";
  }
  ASSERT_EQ(next, 0U) << "all layers are covered";
}

TEST(BucketPlanTest, CoversTheLayersInOrderWhateverTheirSizes) {
  const std::array<std::size_t, 4> choices{0, 1, 3, 8};
  for (std::size_t count = 0; count <= 4; ++count) {
    const std::size_t combinations = std::size_t{1} << (2 * count);
    for (std::size_t code = 0; code < combinations; ++code) {
      std::vector<std::size_t> sizes;
      for (std::size_t i = 0; i < count; ++i) sizes.push_back(choices.at(code >> (2 * i) & 3U));
      for (unsigned groups = 0; groups < 1U << count; ++groups) {
        for (const std::size_t limit : {0U, 1U, 3U, 5U, 100U}) {
          check(layers_of(sizes, groups), {limit * word, limit / 2 * word});
          if (HasFatalFailure()) FAIL() << "sizes " << testing::PrintToString(sizes);
        }
      }
    }
  }
}

// Gradients as bf16.

std::uint16_t rounded(float value) {
  transport::Bfloat16 result;
  flat::round({&result, 1}, {&value, 1});
  return result.bits;
}

float from_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }

TEST(Bf16Test, EveryNumberOfBf16IsKept) {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const transport::Bfloat16 narrow{static_cast<std::uint16_t>(bits)};
    float wide = 0.0F;
    flat::widen({&wide, 1}, {&narrow, 1});
    ASSERT_EQ(std::bit_cast<std::uint32_t>(wide), bits << 16U);
    if (!std::isnan(wide)) {
      ASSERT_EQ(rounded(wide), bits);
    }
  }
}

TEST(Bf16Test, RoundsToTheNearestAndHalfwayToTheEvenOne) {
  EXPECT_EQ(rounded(from_bits(0x3f807fffU)), 0x3f80U);
  EXPECT_EQ(rounded(from_bits(0x3f808000U)), 0x3f80U);  // halfway
  EXPECT_EQ(rounded(from_bits(0x3f808001U)), 0x3f81U);
  EXPECT_EQ(rounded(from_bits(0x3f818000U)), 0x3f82U);  // halfway
  EXPECT_EQ(rounded(from_bits(0xbf818000U)), 0xbf82U);
  EXPECT_EQ(rounded(std::numeric_limits<float>::max()), 0x7f80U);  // infinity is nearer
  EXPECT_EQ(rounded(std::numeric_limits<float>::denorm_min()), 0U);
}

// The bits of a NaN that begin in the lower half would be cut off, or carried over to infinity.
TEST(Bf16Test, NanStaysNan) {
  for (const std::uint32_t bits : {0x7f800001U, 0x7fffffffU, 0xff800001U, 0xffffffffU}) {
    const std::uint32_t wide = std::uint32_t{rounded(from_bits(bits))} << 16U;
    EXPECT_TRUE(std::isnan(from_bits(wide))) << bits;
  }
}

// Scalar products over a model whose slices lie on several ranks, and clipping by them.

/// Tells whether something had come before its memory was given back.
class MemoryUntil : public std::pmr::memory_resource {
 public:
  explicit MemoryUntil(const std::atomic<bool>& come) : come_(come) {}

  [[nodiscard]] bool freed_before() const { return freed_before_; }

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    return std::pmr::new_delete_resource()->allocate(bytes, alignment);
  }
  void do_deallocate(void* data, std::size_t bytes, std::size_t alignment) override {
    freed_before_ = freed_before_ || !come_;
    std::pmr::new_delete_resource()->deallocate(data, bytes, alignment);
  }
  [[nodiscard]] bool do_is_equal(const memory_resource& other) const noexcept override {
    return this == &other;
  }

  const std::atomic<bool>& come_;
  bool freed_before_ = false;
};

// Rank 1 takes part when rank 0 waits, which it does where its reduction is destroyed.
TEST(SliceAllreduceTest, KeepsWhatItSendsUntilItHasBeenReduced) {
  std::atomic<bool> waits = false;
  std::atomic<bool> come = false;
  transport::WorldOptions options = rondo::test::quick_options();
  options.stall_warning = std::chrono::milliseconds(1);
  options.on_stall = [&](const transport::Stall&) {
    waits = true;
    waits.notify_all();
  };
  World(2, options).run([&](transport::World& world) {
    MemoryUntil memory(come);
    std::vector<float> values(1000, 1.0F);
    std::optional<SliceAllreduce> reduction(std::in_place);
    reduction->add(world.communicator(), 0, values.size());
    reduction->send_as(transport::ElementType::bf16, &memory);
    if (world.rank() == 1) {
      waits.wait(false);
      come = true;
    }
    reduction->post(values);
    reduction.reset();
    EXPECT_FALSE(memory.freed_before());
  });
}

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

// A gradient of norm 8, scaled by 1/2, has norm 4.
TEST(ClipTest, ShortensToTheLargestNormAndLeavesOthersAsTheyAre) {
  EXPECT_EQ(clip_factor(64.0, 0.5, 1.0), 0.25);
  EXPECT_EQ(clip_factor(64.0, 0.5, 2.0), 0.5);
  EXPECT_EQ(clip_factor(64.0, 0.5, 4.0), 1.0);
  EXPECT_EQ(clip_factor(64.0, 0.5, 5.0), 1.0);
  EXPECT_EQ(clip_factor(0.0, 0.5, 5.0), 1.0);
  EXPECT_EQ(clip_factor(1e300, 1.0, 0.0), 1.0) << "0 clips nothing";
  EXPECT_EQ(clip_factor(std::numeric_limits<double>::infinity(), 1.0, 0.0), 1.0);
  EXPECT_EQ(clip_factor(std::nan(""), 1.0, 1.0), 1.0) << "does not hide what is not a number";
}

}  // namespace
}  // namespace rondo::sync::reductions_test

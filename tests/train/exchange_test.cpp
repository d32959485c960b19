// Exchanges: halos around parts, sums on their way home, and no memory made on the way.

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/train/halo.hpp>
#include <rondo/transport/world.hpp>

#include "grid/local_windows.hpp"
#include "layers/split_kernels.hpp"
#include "support/allocations.hpp"
#include "support/world.hpp"
#include "train/support/split_layer.hpp"

namespace rondo::train::exchange_test {
namespace {

using rondo::test::World;
using test::Numbers;

constexpr tensor::Shape extents{.n = 2, .h = 9, .w = 7, .c = 4};
constexpr ProcessGrid grid{.pr = 6};
constexpr Windows windows{{.kernel = 3, .before = 1, .after = 1},
                          {.kernel = 5, .before = 2, .after = 2}};

/// A image in 3 x 2 parts, and what each rank needs of it.
struct Cut {
  Partition x = by_space(extents, grid, 3, 2);
  std::vector<Box> needs = forward_needs(x, x, windows);

  [[nodiscard]] Box need_of(int rank) const { return needs[static_cast<std::size_t>(rank)]; }
};

testing::AssertionResult holds(const tensor::ConstAnyView& got, const tensor::Tensor& expected) {
  const std::span values(got.as<float>().data, static_cast<std::size_t>(got.shape.size()));
  return test::agree(values, expected.span(), Numbers::whole);
}

TEST(ExchangeTest, PutsTheHaloAroundAPart) {
  const Cut cut;
  const tensor::Tensor whole = test::filled(extents, Numbers::real, 1);
  World(grid.pr).run([&](transport::World& world) {
    test::GridRank rank(world, grid);
    const Box needed = cut.need_of(world.rank());
    NeededPart part(rank.context, cut.x, cut.needs, needed);
    const tensor::Tensor own = test::part_of(whole, cut.x.box_of(world.rank()));

    part.start(own.view());
    const auto got = part.finish();

    EXPECT_EQ(got.shape, needed.shape());
    EXPECT_TRUE(holds(got, test::part_of(whole, needed)));
  });
}

TEST(ExchangeTest, AddsUpWhatComesHome) {
  const Cut cut;
  tensor::Tensor counts(extents);
  for (const Box& box : cut.needs) {
    tensor::Tensor part = test::part_of(counts, box);
    for (float& count : part.span()) count += 1.0F;
    test::put_part(part.span(), box, counts);
  }
  World(grid.pr).run([&](transport::World& world) {
    const Box own = cut.x.box_of(world.rank());
    const Box needed = cut.need_of(world.rank());
    Exchange home(world.communicator(), halo_return(cut.x, cut.needs, world.rank()), needed, own,
                  &world.arena(), Arrival::adds);
    const std::vector<float> ones(static_cast<std::size_t>(needed.size()), 1.0F);
    tensor::Tensor sums(own.shape());

    home.start(ones.data(), sums.data());
    home.finish(sums.data());

    EXPECT_TRUE(test::agree(sums.span(), test::part_of(counts, own).span(), Numbers::whole));
  });
}

TEST(ExchangeTest, AllocatesNothingWhenItRuns) {
  const Cut cut;
  World(grid.pr).run([&](transport::World& world) {
    test::GridRank rank(world, grid);
    NeededPart part(rank.context, cut.x, cut.needs, cut.need_of(world.rank()));
    const tensor::Tensor own(cut.x.box_of(world.rank()).shape());
    // The transport's stores grow when a peer is further ahead than ever before; what we allocate
    // ourselves we would allocate every time.
    std::size_t least = 1;
    for (int i = 0; i < 10; ++i) {
      const std::size_t before = rondo::test::allocations_of_this_thread();
      part.start(own.view());
      static_cast<void>(part.finish());
      least = std::min(least, rondo::test::allocations_of_this_thread() - before);
    }

    EXPECT_EQ(least, 0U);
  });
}

TEST(ExchangeTest, BeginsAfreshAfterARunThatWasGivenUp) {
  const Cut cut;
  const tensor::Tensor whole = test::filled(extents, Numbers::real, 1);
  World(grid.pr).run([&](transport::World& world) {
    test::GridRank rank(world, grid);
    const Box needed = cut.need_of(world.rank());
    NeededPart part(rank.context, cut.x, cut.needs, needed);
    const tensor::Tensor own = test::part_of(whole, cut.x.box_of(world.rank()));
    const tensor::Tensor given_up(own.shape());

    part.start(given_up.view());
    part.start(own.view());
    const auto got = part.finish();

    EXPECT_TRUE(holds(got, test::part_of(whole, needed)));
  });
}

TEST(ExchangeTest, SeveralMayBeUnderWay) {
  const Cut cut;
  const tensor::Tensor whole = test::filled(extents, Numbers::real, 1);
  World(grid.pr).run([&](transport::World& world) {
    test::GridRank rank(world, grid);
    const Box needed = cut.need_of(world.rank());
    NeededPart first(rank.context, cut.x, cut.needs, needed);
    NeededPart second(rank.context, cut.x, cut.needs, needed);
    const tensor::Tensor own = test::part_of(whole, cut.x.box_of(world.rank()));
    const tensor::Tensor other(own.shape());

    first.start(own.view());
    second.start(other.view());
    static_cast<void>(second.finish());
    const auto got = first.finish();

    EXPECT_TRUE(holds(got, test::part_of(whole, needed)));
  });
}

}  // namespace
}  // namespace rondo::train::exchange_test

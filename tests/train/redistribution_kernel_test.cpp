// Values brought from one layout to another, and gradients back: every pair of layouts.

#include <cstddef>
#include <string>

#include <gtest/gtest.h>

#include <rondo/tensor/engine.hpp>
#include <rondo/transport/world.hpp>

#include "grid/exchange.hpp"
#include "layers/split_kernels.hpp"
#include "support/world.hpp"
#include "train/layouts.hpp"
#include "train/support/whole_layer.hpp"

namespace rondo::train::redistribution_kernel_test {
namespace {

using rondo::test::World;
using test::Numbers;

/// Calls check(context, from, to) on every rank for all pairs of layouts of small arrays.
template <class Check>
void for_each_pair(int ranks, Check check) {
  World(ranks).run([&](transport::World& world) {
    tensor::Engine engine;
    GridCommunicators communicators(world.communicator(), {.pr = ranks});
    const KernelContext context{engine, communicators, &world.arena()};
    for (const tensor::Shape& extents : test::small_arrays()) {
      const auto layouts = test::layouts_of(extents, ranks);
      for (std::size_t i = 0; i < layouts.size(); ++i) {
        const std::size_t j = (7 * i + 3) % layouts.size();
        for (const auto& [from, to] : {std::pair(i, j), std::pair(j, i), std::pair(i, i)}) {
          SCOPED_TRACE(layouts[from].name + " to " + layouts[to].name);
          check(context, layouts[from].partition, layouts[to].partition);
        }
      }
    }
  });
}

TEST(RedistributionKernelTest, BringsValuesFromOneLayoutToTheOther) {
  for (const int ranks : {1, 2, 3, 4, 6}) {
    for_each_pair(ranks, [](const KernelContext& context, const Partition& from,
                            const Partition& to) {
      const int rank = context.communicators.rank();
      const tensor::Tensor whole = test::filled(from.extents(), Numbers::real, 1);
      const tensor::Tensor x = test::part_of(whole, from.box_of(rank));
      tensor::Tensor y(to.box_of(rank).shape());

      make_redistribution(context, from, to)->forward_training({.x = x.view(), .y = y.view()}, {});

      EXPECT_TRUE(
          test::agree(y.span(), test::part_of(whole, to.box_of(rank)).span(), Numbers::whole));
    });
  }
}

TEST(RedistributionKernelTest, BringsGradientsBackToAllThatHoldAValue) {
  for (const int ranks : {2, 6}) {
    for_each_pair(ranks,
                  [](const KernelContext& context, const Partition& from, const Partition& to) {
                    const int rank = context.communicators.rank();
                    const tensor::Tensor whole = test::filled(from.extents(), Numbers::real, 1);
                    tensor::Tensor dy = test::part_of(whole, to.box_of(rank));
                    tensor::Tensor dx(from.box_of(rank).shape());

                    make_redistribution(context, from, to)
                        ->backward_input({.dy = dy.view(), .dx = test::wanted(dx)});

                    EXPECT_TRUE(test::agree(
                        dx.span(), test::part_of(whole, from.box_of(rank)).span(), Numbers::whole));
                  });
  }
}

TEST(RedistributionKernelTest, LeavesOutGradientsThatNobodyWants) {
  for_each_pair(2, [](const KernelContext& context, const Partition& from, const Partition& to) {
    tensor::Tensor dy(to.box_of(context.communicators.rank()).shape());
    EXPECT_NO_THROW(make_redistribution(context, from, to)->backward_input({.dy = dy.view()}));
  });
}

TEST(RedistributionKernelTest, RunsAgainAndAgain) {
  const tensor::Shape extents{.n = 3, .h = 5, .w = 4, .c = 6};
  const Partition from = by_space(extents, {.pr = 4}, 2, 2);
  const Partition to = by_channel(extents, {.pr = 4});
  World(4).run([&](transport::World& world) {
    tensor::Engine engine;
    GridCommunicators communicators(world.communicator(), {.pr = 4});
    const auto kernel = make_redistribution({engine, communicators, &world.arena()}, from, to);
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const tensor::Tensor whole = test::filled(extents, Numbers::real, seed);
      const tensor::Tensor x = test::part_of(whole, from.box_of(world.rank()));
      tensor::Tensor y(to.box_of(world.rank()).shape());

      kernel->forward_inference({.x = x.view(), .y = y.view()}, {});

      EXPECT_TRUE(test::agree(y.span(), test::part_of(whole, to.box_of(world.rank())).span(),
                              Numbers::whole));
    }
  });
}

}  // namespace
}  // namespace rondo::train::redistribution_kernel_test

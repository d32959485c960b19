// Boxes copied, windows applied to parts, and values brought from one layout to another.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/tensor/engine.hpp>
#include <rondo/transport/world.hpp>

#include "grid/exchange.hpp"
#include "grid/local_windows.hpp"
#include "layers/split_kernels.hpp"
#include "support/world.hpp"
#include "train/layouts.hpp"
#include "train/support/arrays.hpp"
#include "train/support/layers_on_grid.hpp"

namespace rondo::train::exchange_kernels_test {
namespace {

using rondo::test::World;
using test::Numbers;

// Boxes copied between memories that hold boxes: exact, and nothing besides.

constexpr tensor::Shape copied{.n = 2, .h = 4, .w = 5, .c = 3};
constexpr float untouched = -1.0F;

/// Boxes that are dense in more and more dimensions, and none.
std::vector<Box> boxes() {
  return {{{0, 1}, {1, 3}, {2, 4}, {1, 2}}, {{0, 2}, {1, 3}, {1, 4}, {0, 3}},
          {{0, 2}, {1, 2}, {0, 5}, {0, 3}}, {{1, 2}, {0, 4}, {0, 5}, {0, 3}},
          {{0, 2}, {0, 4}, {0, 5}, {0, 3}}, {{0, 2}, {3, 3}, {0, 5}, {0, 3}}};
}

/// The content of memory for `held` after `box` of `whole` was put into it, element by element.
std::vector<float> expected(const tensor::Tensor& whole, const Box& box, const Box& held,
                            float before) {
  tensor::Tensor after(copied);
  std::ranges::fill(after.span(), before);
  test::put_part(test::part_of(whole, box).span(), box, after);
  const tensor::Tensor part = test::part_of(after, held);
  return {part.span().begin(), part.span().end()};
}

TEST(BoxCopyTest, CopiesTheBoxAndLeavesTheRest) {
  const tensor::Tensor whole = test::filled(copied, test::Numbers::real, 1);
  for (const Box& from : boxes()) {
    for (const Box& into : boxes()) {
      for (const Box& wanted : boxes()) {
        const Box box = intersection(wanted, intersection(from, into));
        const tensor::Tensor source = test::part_of(whole, from);
        std::vector<float> target(static_cast<std::size_t>(into.size()), untouched);

        copy_box(box, {source.data(), from}, {target.data(), into});

        EXPECT_EQ(target, expected(whole, box, into, untouched));
      }
    }
  }
}

TEST(BoxCopyTest, AddsTheBoxAndLeavesTheRest) {
  const tensor::Tensor whole = test::filled(copied, test::Numbers::whole, 1);
  const tensor::Tensor ones = [] {
    tensor::Tensor made(copied);
    std::ranges::fill(made.span(), 1.0F);
    return made;
  }();
  for (const Box& held : boxes()) {
    for (const Box& wanted : boxes()) {
      const Box box = intersection(wanted, held);
      const tensor::Tensor source = test::part_of(whole, held);
      std::vector<float> target(static_cast<std::size_t>(held.size()));

      add_box(box, {ones.data(), train::whole(copied)}, {target.data(), held});
      add_box(box, {source.data(), held}, {target.data(), held});

      std::vector<float> sums = expected(whole, box, held, untouched);
      for (float& sum : sums) sum += 1.0F;
      EXPECT_EQ(target, sums);
    }
  }
}

// Kernels on parts of images, by arithmetic alone: every small window on every cut.

/// One column wide, so that rows are all there is.
struct Rows {
  Window window;
  Partition x;
  Partition y;

  [[nodiscard]] Windows windows() const { return {window, {}}; }
};

/// Calls check(rows, rank) for every rank of every split of every image.
template <class Check>
void for_each_part(Check check) {
  for (const std::int64_t kernel : {1, 2, 3, 5}) {
    for (const std::int64_t stride : {1, 2, 3}) {
      for (std::int64_t padding = 0; padding < kernel; ++padding) {
        const Window window{kernel, stride, padding, padding};
        for (std::int64_t height = 1; height <= 13; ++height) {
          for (const int parts : {1, 2, 3, 4}) {
            if (window.outputs(height) == 0) continue;
            const Partition x = by_space({1, height, 1, 1}, {.pr = parts}, parts, 1);
            const Rows rows{window, x, x.with_extents({1, window.outputs(height), 1, 1})};
            SCOPED_TRACE("kernel " + std::to_string(kernel) + " stride " + std::to_string(stride) +
                         " padding " + std::to_string(padding) + " height " +
                         std::to_string(height) + " parts " + std::to_string(parts));
            for (int rank = 0; rank < parts; ++rank) check(rows, rank);
            if (testing::Test::HasFailure()) return;
          }
        }
      }
    }
  }
}

/// Does a kernel on `local` give just `outputs`, each where the unsplit one has it?
void expect_outputs(const LocalWindow& local, const Window& window, Range outputs) {
  const Window within{window.kernel, window.stride, local.before, local.after};
  EXPECT_EQ(within.outputs(local.inputs.size()), outputs.size());
  EXPECT_EQ(local.inputs.first - local.before, outputs.first * window.stride - window.before);
  EXPECT_GE(local.before, 0);
  EXPECT_GE(local.after, 0);
}

TEST(LocalWindowsTest, ForwardKernelsGiveTheOutputsOfTheirRank) {
  for_each_part([](const Rows& rows, int rank) {
    const Halo halo = forward_halo(rows.x, rows.y, rows.windows(), rank);
    if (halo.own.empty()) return;
    const Box held = rows.x.box_of(rank);

    const LocalWindow local = forward_windows(halo, rows.windows(), held).h;

    expect_outputs(local, rows.window, halo.own.h);
    EXPECT_TRUE(local.inputs == halo.needed.h || local.inputs == held.h);
    EXPECT_TRUE(local.inputs.contains(halo.needed.h));
    EXPECT_TRUE(local.before == 0 || local.inputs.first == 0);
    EXPECT_TRUE(local.after == 0 || local.inputs.last == rows.x.extents().h);
  });
}

TEST(LocalWindowsTest, BackwardKernelsReadTheOutputsThatFeedTheirRank) {
  for_each_part([](const Rows& rows, int rank) {
    const Halo halo = backward_halo(rows.x, rows.y, rows.windows(), rank);
    if (halo.needed.empty()) return;
    const LocalWindow local = backward_windows(halo, rows.windows()).h;
    expect_outputs(local, rows.window, halo.needed.h);
    EXPECT_TRUE(halo.own.h.contains(local.inputs));
  });
}

TEST(LocalWindowsTest, BackwardKernelsLeaveOutOnlyWhatNoOutputReaches) {
  for_each_part([](const Rows& rows, int rank) {
    const Halo halo = backward_halo(rows.x, rows.y, rows.windows(), rank);
    if (halo.needed.empty()) return;
    const LocalWindow local = backward_windows(halo, rows.windows()).h;
    for (std::int64_t input = halo.own.h.first; input < halo.own.h.last; ++input) {
      if (local.inputs.contains({input, input + 1})) continue;
      EXPECT_TRUE(outputs_fed(rows.window, {input, input + 1}, rows.y.extents().h).range.empty());
    }
  });
}

// Values brought from one layout to another, and gradients back: every pair of layouts.

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

// Exchanges: halos around parts, and sums on their way home.

constexpr ProcessGrid six{.pr = 6};

/// An image in 3 x 2 parts, and what each rank needs of it.
struct Cut {
  tensor::Shape extents{.n = 2, .h = 9, .w = 7, .c = 4};
  Partition x = by_space(extents, six, 3, 2);
  std::vector<Box> needs = forward_needs(
      x, x, {{.kernel = 3, .before = 1, .after = 1}, {.kernel = 5, .before = 2, .after = 2}});

  [[nodiscard]] Box need_of(int rank) const { return needs[static_cast<std::size_t>(rank)]; }
};

/// Calls check(first, second, this rank's part, other values) on every rank, where both are needed
/// parts of the same array, and expects the result to be that of this rank's part.
template <class Check>
void with_two_exchanges(Check check) {
  const Cut cut;
  const tensor::Tensor whole = test::filled(cut.extents, Numbers::real, 1);
  World(six.pr).run([&](transport::World& world) {
    test::GridRank rank(world, six);
    const Box needed = cut.need_of(world.rank());
    NeededPart first(rank.context, cut.x, cut.needs, needed);
    NeededPart second(rank.context, cut.x, cut.needs, needed);
    const tensor::Tensor own = test::part_of(whole, cut.x.box_of(world.rank()));
    const tensor::ConstAnyView got = check(first, second, own, tensor::Tensor(own.shape()));

    EXPECT_EQ(got.shape, needed.shape());
    const std::span values(got.as<float>().data, static_cast<std::size_t>(got.shape.size()));
    EXPECT_TRUE(test::agree(values, test::part_of(whole, needed).span(), Numbers::whole));
  });
}

TEST(ExchangeTest, BeginsAfreshAfterARunThatWasGivenUp) {
  with_two_exchanges([](NeededPart& part, NeededPart&, const auto& own, const auto& other) {
    part.start(other.view());
    part.start(own.view());
    return part.finish();
  });
}

TEST(ExchangeTest, SeveralMayBeUnderWay) {
  with_two_exchanges([](NeededPart& first, NeededPart& second, const auto& own, const auto& other) {
    first.start(own.view());
    second.start(other.view());
    static_cast<void>(second.finish());
    return first.finish();
  });
}

TEST(ExchangeTest, AddsUpWhatComesHome) {
  const Cut cut;
  tensor::Tensor counts(cut.extents);
  for (const Box& box : cut.needs) {
    tensor::Tensor part = test::part_of(counts, box);
    for (float& count : part.span()) count += 1.0F;
    test::put_part(part.span(), box, counts);
  }
  World(six.pr).run([&](transport::World& world) {
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

}  // namespace
}  // namespace rondo::train::exchange_kernels_test

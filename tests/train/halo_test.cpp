// Windows of kernels over parts of images, and the halos that they need.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/halo.hpp>
#include <rondo/train/redistribution.hpp>

#include "train/layouts.hpp"

namespace rondo::train::halo_test {
namespace {

using testing::ElementsAre;

// Windows along one dimension, against a model that looks at every tap of every output.

using Values = std::vector<std::int64_t>;

std::int64_t at(const Values& values, std::int64_t index) {
  return values.at(static_cast<std::size_t>(index));
}

/// Distinct numbers, so that sums of wrong elements differ.
Values numbers(std::int64_t count) {
  Values values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(i * i * i + 7 * i + 1);
  return values;
}

Values part(const Values& values, Range range) {
  return {values.begin() + range.first, values.begin() + range.last};
}

/// The layer's y for `x`, with tap t weighted by t + 1.
Values forward(const Window& window, const Values& x) {
  const auto extent = static_cast<std::int64_t>(x.size());
  Values y(static_cast<std::size_t>(window.outputs(extent)));
  for (std::size_t o = 0; o < y.size(); ++o) {
    for (std::int64_t t = 0; t < window.kernel; ++t) {
      const std::int64_t i = static_cast<std::int64_t>(o) * window.stride - window.before + t;
      if (i >= 0 && i < extent) y[o] += (t + 1) * at(x, i);
    }
  }
  return y;
}

/// dx of `extent` inputs for `dy`.
Values backward(const Window& window, const Values& dy, std::int64_t extent) {
  Values dx(static_cast<std::size_t>(extent));
  for (std::size_t o = 0; o < dy.size(); ++o) {
    for (std::int64_t t = 0; t < window.kernel; ++t) {
      const std::int64_t i = static_cast<std::int64_t>(o) * window.stride - window.before + t;
      if (i >= 0 && i < extent) dx[static_cast<std::size_t>(i)] += (t + 1) * dy[o];
    }
  }
  return dx;
}

/// Does output o read input i?
bool reads(const Window& window, std::int64_t o, std::int64_t i) {
  const std::int64_t tap = i - (o * window.stride - window.before);
  return tap >= 0 && tap < window.kernel;
}

Window with_padding(const Window& window, const Reach& reach) {
  return {window.kernel, window.stride, reach.before, reach.after};
}

/// Calls check(window, inputs) for kernels, strides, paddings on either side, and extents.
template <class Check>
void for_each_window(Check check) {
  for (const std::int64_t kernel : {1, 2, 3, 5, 7}) {
    for (const std::int64_t stride : {1, 2, 3}) {
      for (std::int64_t before = 0; before <= 3; ++before) {
        for (std::int64_t after = 0; after <= 3; ++after) {
          for (std::int64_t inputs = 0; inputs <= 13; ++inputs) {
            check(Window{kernel, stride, before, after}, inputs);
            if (testing::Test::HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

/// Calls check(range) for all ranges within [0, extent).
template <class Check>
void for_each_range(std::int64_t extent, Check check) {
  for (std::int64_t first = 0; first <= extent; ++first) {
    for (std::int64_t last = first; last <= extent; ++last) check(Range{first, last});
  }
}

TEST(WindowTest, InputsReadGiveTheOutputsOfTheUnsplitLayer) {
  for_each_window([](const Window& window, std::int64_t inputs) {
    const Values x = numbers(inputs);
    const Values y = forward(window, x);
    for_each_range(window.outputs(inputs), [&](Range outputs) {
      const Reach reach = inputs_read(window, outputs, inputs);
      if (outputs.empty()) {
        ASSERT_EQ(reach, Reach{});
        return;
      }
      ASSERT_TRUE((Range{0, inputs}).contains(reach.range));
      ASSERT_EQ(forward(with_padding(window, reach), part(x, reach.range)), part(y, outputs));
    });
  });
}

TEST(WindowTest, InputsReadAreNoMoreThanTheTaps) {
  for_each_window([](const Window& window, std::int64_t inputs) {
    if (window.kernel < window.stride) return;  // skipped inputs are in the stretch
    for_each_range(window.outputs(inputs), [&](Range outputs) {
      const Range range = inputs_read(window, outputs, inputs).range;
      for (std::int64_t i = range.first; i < range.last; ++i) {
        bool is_read = false;
        for (auto o = outputs.first; o < outputs.last; ++o) is_read |= reads(window, o, i);
        ASSERT_TRUE(is_read) << i;
      }
    });
  });
}

TEST(WindowTest, OutputsFedGiveTheGradientsOfTheUnsplitLayer) {
  for_each_window([](const Window& window, std::int64_t inputs) {
    const std::int64_t outputs = window.outputs(inputs);
    const Values dy = numbers(outputs);
    const Values dx = backward(window, dy, inputs);
    for_each_range(inputs, [&](Range own) {
      const Reach reach = outputs_fed(window, own, outputs);
      ASSERT_TRUE((Range{0, outputs}).contains(reach.range));
      ASSERT_EQ(backward(with_padding(window, reach), part(dy, reach.range), own.size()),
                part(dx, own));
    });
  });
}

TEST(WindowTest, OutputsFedAreThoseThatReadTheInputs) {
  for_each_window([](const Window& window, std::int64_t inputs) {
    const std::int64_t outputs = window.outputs(inputs);
    for_each_range(inputs, [&](Range own) {
      const Range range = outputs_fed(window, own, outputs).range;
      for (std::int64_t o = 0; o < outputs; ++o) {
        bool is_fed = false;
        for (auto i = own.first; i < own.last; ++i) is_fed |= reads(window, o, i);
        ASSERT_EQ(is_fed, range.first <= o && o < range.last) << o;
      }
    });
  });
}

TEST(WindowTest, BackwardPaddingMakesAKernelOfTheRightSize) {
  for_each_window([](const Window& window, std::int64_t inputs) {
    for_each_range(inputs, [&](Range own) {
      const Reach reach = outputs_fed(window, own, window.outputs(inputs));
      if (reach.range.empty()) return;
      ASSERT_EQ((reach.range.size() - 1) * window.stride + window.kernel,
                own.size() + reach.before + reach.after);
    });
  });
}

/// The inner range holds just those of `all` that are inner, leaving aside those that need nothing
/// at all.
template <class IsInner, class IsIdle>
void expect_inner(Range inner, Range all, IsInner is_inner, IsIdle is_idle) {
  ASSERT_TRUE(all.contains(inner));
  for (auto i = all.first; i < all.last; ++i) {
    const bool in_range = inner.first <= i && i < inner.last;
    ASSERT_TRUE(is_idle(i) || in_range == is_inner(i)) << i;
  }
}

TEST(WindowTest, InnerOutputsReadOnlyWhatIsHeld) {
  for_each_window([](const Window& window, std::int64_t inputs) {
    const Range outputs{0, window.outputs(inputs)};
    for_each_range(inputs, [&](Range held) {
      const auto counts = [&](std::int64_t o, Range range) {
        std::int64_t count = 0;
        for (auto i = range.first; i < range.last; ++i) count += reads(window, o, i) ? 1 : 0;
        return count;
      };
      const Range all{0, inputs};
      expect_inner(
          inner_outputs(window, outputs, held, inputs), outputs,
          [&](std::int64_t o) { return counts(o, held) == counts(o, all); },
          [&](std::int64_t o) { return counts(o, all) == 0; });
    });
  });
}

TEST(WindowTest, ThreeByThreeReachesOneFurtherOnEitherSide) {
  const Window window{.kernel = 3, .stride = 1, .before = 1, .after = 1};
  EXPECT_EQ(inputs_read(window, {4, 8}, 12), (Reach{{3, 9}, 0, 0}));
  EXPECT_EQ(inputs_read(window, {0, 4}, 12), (Reach{{0, 5}, 1, 0}));
  EXPECT_EQ(outputs_fed(window, {4, 8}, 12), (Reach{{3, 9}, 2, 2}));
  EXPECT_EQ(inner_outputs(window, {4, 8}, {4, 8}, 12), (Range{5, 7}));
}

TEST(WindowTest, OneByOneOfStrideTwoLeavesOddInputsWithoutGradient) {
  const Window window{.kernel = 1, .stride = 2};
  EXPECT_EQ(outputs_fed(window, {3, 6}, 6), (Reach{{2, 3}, -1, -1}));
  EXPECT_TRUE(outputs_fed(window, {3, 4}, 6).range.empty());
}

// Halos of images that are split over ranks. LayersOnGridTest shows that kernels on parts with
// their halos give what the unsplit ones give.

Windows square(std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  return windows_of(ConvolutionLayer{.kernel = kernel, .stride = stride, .padding = padding});
}

tensor::Shape output_of(const tensor::Shape& x, const Windows& windows) {
  return {x.n, windows.h.outputs(x.h), windows.w.outputs(x.w), x.c};
}

/// Calls check(x, y, windows) for kernels, strides, paddings, and spatial splits of few rows and
/// columns: uneven, thinner than the halo, and empty ones.
template <class Check>
void for_each_split(Check check) {
  for (const tensor::Shape& extents : {tensor::Shape{.n = 1, .h = 9, .w = 8, .c = 1},
                                       tensor::Shape{.n = 2, .h = 4, .w = 11, .c = 2}}) {
    for (const std::int64_t kernel : {1, 3, 5, 7}) {
      for (const std::int64_t stride : {1, 2}) {
        for (std::int64_t padding = 0; padding <= 3; ++padding) {
          const Windows windows = square(kernel, stride, padding);
          for (const auto& [h, w] : {std::pair{2, 1}, {3, 1}, {1, 4}, {4, 1}, {2, 2}, {2, 3}}) {
            const Partition x = by_space(extents, {.pr = h * w, .pc = 2}, h, w);
            check(x, x.with_extents(output_of(extents, windows)), windows);
            if (testing::Test::HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST(HaloTest, EveryPeerSendsWhatIsExpectedOfIt) {
  for_each_split([](const Partition& x, const Partition& y, const Windows& windows) {
    const std::vector<Box> needs = forward_needs(x, y, windows);
    for (int rank = 0; rank < x.ranks(); ++rank) {
      for (const auto& [peer, box] : redistribution(x, needs, rank).sends) {
        const std::vector<Transfer> expected = redistribution(x, needs, peer).receives;
        ASSERT_EQ(std::ranges::count(expected, Transfer{rank, box}), 1);
      }
    }
  });
}

TEST(HaloTest, EvenSplitsMoveHalfAKernelAcrossEachCut) {
  const tensor::Shape extents{.n = 3, .h = 16, .w = 10, .c = 5};
  for (const std::int64_t kernel : {1, 3, 5, 7}) {
    const Partition x = by_space(extents, {.pr = 4}, 4, 1);
    const Windows windows = square(kernel, 1, kernel / 2);
    for (const auto& needs : {forward_needs(x, x, windows), backward_needs(x, x, windows)}) {
      std::int64_t elements = 0;
      for (int rank = 0; rank < 4; ++rank)
        elements += redistribution(x, needs, rank).elements_sent();

      EXPECT_EQ(elements, 2 * (4 - 1) * (kernel / 2) * extents.n * extents.w * extents.c);
    }
  }
}

TEST(HaloTest, ThinPartsTakeRowsFromSeveralRanksAway) {
  const tensor::Shape extents{.n = 1, .h = 4, .w = 2, .c = 1};
  const Partition x = by_space(extents, {.pr = 4}, 4, 1);
  const Redistribution plan = redistribution(x, forward_needs(x, x, square(5, 1, 2)), 0);
  EXPECT_THAT(plan.receives, ElementsAre(Transfer{2, x.box_of(2)}, Transfer{1, x.box_of(1)}));
}

TEST(HaloTest, CornersComeFromTheRankThatHoldsThem) {
  const tensor::Shape extents{.n = 1, .h = 8, .w = 6, .c = 2};
  const Partition x = by_space(extents, {.pr = 4}, 2, 2);
  const Redistribution plan = redistribution(x, forward_needs(x, x, square(3, 1, 1)), 0);
  EXPECT_THAT(plan.receives, ElementsAre(Transfer{3, Box{{0, 1}, {4, 5}, {3, 4}, {0, 2}}},
                                         Transfer{2, Box{{0, 1}, {4, 5}, {0, 3}, {0, 2}}},
                                         Transfer{1, Box{{0, 1}, {0, 4}, {3, 4}, {0, 2}}}));
}

TEST(HaloTest, PoolingThatDividesThePartsNeedsNoExchange) {
  const tensor::Shape extents{.n = 1, .h = 8, .w = 12, .c = 3};
  const Windows windows = windows_of(PoolingLayer{.window = 2, .stride = 2});
  const Partition x = by_space(extents, {.pr = 4}, 2, 2);
  const Partition y = x.with_extents(output_of(extents, windows));
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(forward_halo(x, y, windows, rank).needed, x.box_of(rank));
    EXPECT_EQ(backward_halo(x, y, windows, rank).needed, y.box_of(rank));
  }
}

TEST(HaloTest, StaysWithinTheGroupAndItsSamples) {
  const tensor::Shape extents{.n = 5, .h = 6, .w = 6, .c = 2};
  const ProcessGrid grid{.pr = 2, .pc = 3};
  const Partition x = by_space(extents, grid, 2, 1);
  const std::vector<Box> needs = forward_needs(x, x, square(3, 1, 1));
  for (int rank = 0; rank < 6; ++rank) {
    EXPECT_EQ(needs[static_cast<std::size_t>(rank)].n, x.box_of(rank).n);
    for (const Transfer& received : redistribution(x, needs, rank).receives) {
      EXPECT_EQ(grid.replica_of(received.peer), grid.replica_of(rank));
    }
  }
}

TEST(HaloTest, TakesTheChannelsOfWhatIsReadNotOfWhatIsWritten) {
  const Partition x = by_space({.n = 1, .h = 6, .w = 6, .c = 2}, {.pr = 2}, 2, 1);
  const Partition y = x.with_extents({.n = 1, .h = 6, .w = 6, .c = 3});
  EXPECT_EQ(forward_halo(x, y, square(3, 1, 1), 0).needed, (Box{{0, 1}, {0, 4}, {0, 6}, {0, 2}}));
  EXPECT_EQ(backward_halo(x, y, square(3, 1, 1), 0).needed, (Box{{0, 1}, {0, 4}, {0, 6}, {0, 3}}));
}

TEST(HaloTest, RefusesLayersWhoseInputAndOutputDoNotFit) {
  const tensor::Shape extents{.n = 2, .h = 6, .w = 6, .c = 2};
  const Partition x = by_space(extents, {.pr = 2}, 2, 1);
  EXPECT_THROW(static_cast<void>(forward_halo(x, x, square(3, 2, 1), 0)), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(backward_halo(x, by_sample(extents, 4), {}, 0)),
               std::invalid_argument);
  EXPECT_THROW(static_cast<void>(forward_halo(x, by_sample(extents, 2), {}, 0)),
               std::invalid_argument);
}

}  // namespace
}  // namespace rondo::train::halo_test

// Windows along one dimension, against a model that looks at every tap of every output.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/train/halo.hpp>

namespace rondo::train::window_test {
namespace {

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

TEST(WindowTest, OneByOneReachesNoFurther) {
  EXPECT_EQ(inputs_read({}, {4, 8}, 12), (Reach{{4, 8}, 0, 0}));
  EXPECT_EQ(outputs_fed({}, {4, 8}, 12), (Reach{{4, 8}, 0, 0}));
  EXPECT_EQ(inner_outputs({}, {4, 8}, {4, 8}, 12), (Range{4, 8}));
}

TEST(WindowTest, OneByOneOfStrideTwoLeavesOddInputsWithoutGradient) {
  const Window window{.kernel = 1, .stride = 2};

  EXPECT_EQ(outputs_fed(window, {3, 6}, 6), (Reach{{2, 3}, -1, -1}));
  EXPECT_TRUE(outputs_fed(window, {3, 4}, 6).range.empty());
}

}  // namespace
}  // namespace rondo::train::window_test

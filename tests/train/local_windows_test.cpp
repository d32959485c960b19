// Kernels on parts of images, by arithmetic alone: every small window on every cut.

#include <algorithm>
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "grid/local_windows.hpp"

namespace rondo::train::local_windows_test {
namespace {

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

}  // namespace
}  // namespace rondo::train::local_windows_test

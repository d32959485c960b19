// Inner rows of a convolution before those at the cuts: which rows, from what memory, and when it
// pays.

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/tensor/convolution.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/train/halo.hpp>

#include "layers/interior_first.hpp"
#include "train/support/arrays.hpp"
#include "train/support/by_space.hpp"

namespace rondo::train::interior_first_test {
namespace {

using test::Numbers;

constexpr std::int64_t channels = 8;
constexpr Window three{.kernel = 3, .before = 1, .after = 1};

/// Rank 1 of an image in h x w parts, for a convolution of 3x3.
struct Part {
  explicit Part(tensor::Shape extents, int h, int w)
      : x(by_space(extents, {.pr = h * w}, h, w)),
        halo(forward_halo(x, x, windows, 1)),
        held(x.box_of(1)) {}

  [[nodiscard]] bool pays(std::int64_t weights = 1) const {
    return InteriorFirst::pays(halo, held, halo.needed, weights);
  }

  Windows windows{three, three};
  Partition x;
  Halo halo;
  Box held;
};

TEST(InteriorFirstTest, PaysForOneImageCutBetweenRows) {
  EXPECT_TRUE(Part({1, 24, 8, channels}, 3, 1).pays());
  EXPECT_TRUE(Part({1, 24, 8, channels}, 2, 1).pays());
}

TEST(InteriorFirstTest, DoesNotPayWhereItWouldCopyOrComputeInBits) {
  EXPECT_FALSE(Part({2, 24, 8, channels}, 3, 1).pays()) << "two images";
  EXPECT_FALSE(Part({1, 24, 8, channels}, 1, 3).pays()) << "columns";
  EXPECT_FALSE(Part({1, 24, 8, channels}, 2, 2).pays()) << "rows and columns";
  EXPECT_FALSE(Part({1, 9, 8, channels}, 3, 1).pays()) << "one inner row of three";
  const std::int64_t held = 8 * 8 * channels;
  EXPECT_FALSE(Part({1, 24, 8, channels}, 3, 1).pays(4 * held + 1)) << "many weights";
}

TEST(InteriorFirstTest, InnerRowsComeFromThePartBorderRowsFromItsCopyWithTheHalo) {
  const Part part({1, 24, 6, channels}, 3, 1);
  tensor::Engine engine;
  tensor::Convolution whole(engine, {.input = part.halo.needed.shape(),
                                     .filters = 16,
                                     .kernel_h = 3,
                                     .kernel_w = 3,
                                     .pad_left = 1,
                                     .pad_right = 1});
  std::vector<float> weights(16 * channels * 9);
  test::fill(weights, Numbers::whole, 1);
  InteriorFirst interior(whole, part.halo, part.windows, 24, part.held, part.halo.needed);
  whole.pack_weights(weights);  // for all that share them
  const tensor::Tensor image = test::filled(part.x.extents(), Numbers::whole, 2);
  const tensor::Tensor held = test::part_of(image, part.held);
  const tensor::Tensor read = test::part_of(image, part.halo.needed);
  tensor::Tensor expected(whole.spec().output());
  whole.forward(read.view(), {}, expected.view());
  tensor::Tensor y(whole.spec().output());
  std::ranges::fill(y.span(), -0.5F);
  const std::size_t row = 6 * 16;
  const auto inner = [&](const tensor::Tensor& all) {
    return all.span().subspan(row, all.span().size() - 2 * row);
  };

  interior.inner(held.view(), {}, y.view());
  EXPECT_TRUE(test::agree(inner(y), inner(expected), Numbers::whole));
  EXPECT_EQ(y.span().front(), -0.5F);
  EXPECT_EQ(y.span().back(), -0.5F);

  interior.border(read.view(), {}, y.view());
  EXPECT_TRUE(test::agree(y.span(), expected.span(), Numbers::whole));
}

}  // namespace
}  // namespace rondo::train::interior_first_test

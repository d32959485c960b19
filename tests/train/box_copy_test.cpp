// Boxes copied between memories that hold boxes: exact, and nothing besides.

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "grid/exchange.hpp"
#include "train/support/whole_layer.hpp"

namespace rondo::train::box_copy_test {
namespace {

constexpr tensor::Shape extents{.n = 2, .h = 4, .w = 5, .c = 3};
constexpr float untouched = -1.0F;

/// Boxes that are dense in more and more dimensions, and none.
std::vector<Box> boxes() {
  return {{{0, 1}, {1, 3}, {2, 4}, {1, 2}}, {{0, 2}, {1, 3}, {1, 4}, {0, 3}},
          {{0, 2}, {1, 2}, {0, 5}, {0, 3}}, {{1, 2}, {0, 4}, {0, 5}, {0, 3}},
          {{0, 2}, {0, 4}, {0, 5}, {0, 3}}, {{0, 2}, {3, 3}, {0, 5}, {0, 3}}};
}

/// What memory that holds `held` has after `box` of `whole` was put into it, element by element.
std::vector<float> expected(const tensor::Tensor& whole, const Box& box, const Box& held,
                            float before) {
  tensor::Tensor after(extents);
  std::ranges::fill(after.span(), before);
  test::put_part(test::part_of(whole, box).span(), box, after);
  const tensor::Tensor part = test::part_of(after, held);
  return {part.span().begin(), part.span().end()};
}

TEST(BoxCopyTest, CopiesTheBoxAndLeavesTheRest) {
  const tensor::Tensor whole = test::filled(extents, test::Numbers::real, 1);
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
  const tensor::Tensor whole = test::filled(extents, test::Numbers::whole, 1);
  const tensor::Tensor ones = [] {
    tensor::Tensor made(extents);
    std::ranges::fill(made.span(), 1.0F);
    return made;
  }();
  for (const Box& held : boxes()) {
    for (const Box& wanted : boxes()) {
      const Box box = intersection(wanted, held);
      const tensor::Tensor source = test::part_of(whole, held);
      std::vector<float> target(static_cast<std::size_t>(held.size()));

      add_box(box, {ones.data(), train::whole(extents)}, {target.data(), held});
      add_box(box, {source.data(), held}, {target.data(), held});

      std::vector<float> sums = expected(whole, box, held, untouched);
      for (float& sum : sums) sum += 1.0F;
      EXPECT_EQ(target, sums);
    }
  }
}

}  // namespace
}  // namespace rondo::train::box_copy_test

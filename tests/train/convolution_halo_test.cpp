// What a convolution in space sends, when, and with what memory.

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/tensor/engine.hpp>
#include <rondo/train/halo.hpp>
#include <rondo/train/redistribution.hpp>
#include <rondo/transport/world.hpp>

#include "support/world.hpp"
#include "train/support/split_layer.hpp"

namespace rondo::train::convolution_halo_test {
namespace {

using rondo::test::World;
using test::Numbers;

/// Words that a rank has sent by each call of a kernel.
struct Sent {
  std::int64_t forward = 0;
  std::int64_t parameters = 0;
  std::int64_t input = 0;
};

/// Runs the layer and counts what the transport says was sent; forward twice, the second counts.
Sent sent_by(transport::World& world, LayerKernel& kernel, const NodeLayout& place,
             const test::WholeLayer& whole) {
  const Box x_box = place.x.box_of(world.rank());
  const Box y_box = place.y.box_of(world.rank());
  const tensor::Tensor x = test::part_of(whole.x, x_box);
  tensor::Tensor dy = test::part_of(whole.dy, y_box);
  tensor::Tensor y(y_box.shape());
  tensor::Tensor dx(x_box.shape());
  std::vector<float> gradients(whole.parameters.size());
  const BackwardOperands operands{.x = x.view(),
                                  .y = y.view(),
                                  .dy = dy.view(),
                                  .dx = test::wanted(dx),
                                  .parameters = whole.parameters,
                                  .gradients = gradients};
  const auto words = [&](auto call) {
    const auto before = world.counters().sent_bytes;
    call();
    return static_cast<std::int64_t>((world.counters().sent_bytes - before) / sizeof(float));
  };
  kernel.load(whole.parameters);
  const auto forward = [&] {
    kernel.forward_training({.x = x.view(), .y = y.view(), .parameters = whole.parameters}, {});
  };
  forward();
  return {.forward = words(forward),
          .parameters = words([&] { kernel.backward_parameters(operands); }),
          .input = words([&] { kernel.backward_input(operands); })};
}

NodeLayout place_in_space(ProcessGrid grid, int h, int w, const test::WholeLayer& whole) {
  return test::place_on(grid, {.kind = SplitKind::space, .h = h, .w = w}, whole);
}

/// Calls check(world, place, what was sent) on every rank.
template <class Check>
void for_each_rank(int h, int w, const ConvolutionLayer& layer, tensor::Shape x,
                   bool input_gradient, Check check) {
  const test::WholeLayer whole = test::make_whole_layer(layer, x, Numbers::whole);
  const ProcessGrid grid{.pr = h * w};
  World(rondo::test::Backend::shm_nodes, grid.ranks()).run([&](transport::World& world) {
    test::GridRank rank(world, grid);
    const NodeLayout place = place_in_space(grid, h, w, whole);
    const auto kernel = make_convolution_in_space(rank.context, layer, place, input_gradient);
    check(world, place, sent_by(world, *kernel, place, whole));
  });
}

TEST(ConvolutionHaloTest, SendsWhatThePlanSays) {
  for (const auto& [h, w] : {std::array{2, 1}, {1, 3}, {2, 2}, {3, 2}}) {
    for (const std::int64_t kernel : {1, 3, 5}) {
      for (const std::int64_t stride : {1, 2}) {
        const ConvolutionLayer layer{
            .filters = 16, .kernel = kernel, .stride = stride, .padding = (kernel - 1) / 2};
        for_each_rank(h, w, layer, {1, 9, 13, 8}, true,
                      [&](transport::World& world, const NodeLayout& place, const Sent& sent) {
                        const Windows windows = windows_of(layer);
                        const auto x = redistribution(
                            place.x, forward_needs(place.x, place.y, windows), world.rank());
                        const auto dy = redistribution(
                            place.y, backward_needs(place.x, place.y, windows), world.rank());
                        EXPECT_EQ(sent.forward, x.words_sent());
                        EXPECT_EQ(sent.parameters + sent.input, dy.words_sent());
                      });
      }
    }
  }
}

TEST(ConvolutionHaloTest, IsHalfAKernelOfRowsOnEachSideOfAnEvenSplit) {
  for (const std::int64_t kernel : {1, 3, 5, 7}) {
    const ConvolutionLayer layer{.filters = 16, .kernel = kernel, .padding = (kernel - 1) / 2};
    for_each_rank(4, 1, layer, {2, 16, 6, 8}, true,
                  [&](transport::World& world, const NodeLayout&, const Sent& sent) {
                    const int sides = world.rank() == 0 || world.rank() == 3 ? 1 : 2;
                    EXPECT_EQ(sent.forward, 2 * sides * (kernel / 2) * 6 * 8);
                    EXPECT_EQ(sent.parameters + sent.input, 2 * sides * (kernel / 2) * 6 * 16);
                  });
  }
}

TEST(ConvolutionHaloTest, OfDyLeavesWithTheFirstHalfOfBackward) {
  for_each_rank(2, 1, {.filters = 16}, {1, 8, 6, 8}, true,
                [](transport::World&, const NodeLayout&, const Sent& sent) {
                  EXPECT_EQ(sent.parameters, 6 * 16);
                  EXPECT_EQ(sent.input, 0);
                });
}

TEST(ConvolutionHaloTest, OfDyStaysWhereNobodyWantsTheGradientOfTheInput) {
  for_each_rank(2, 1, {.filters = 16}, {1, 8, 6, 8}, false,
                [](transport::World&, const NodeLayout&, const Sent& sent) {
                  EXPECT_EQ(sent.parameters, 0);
                  EXPECT_EQ(sent.input, 0);
                });
}

TEST(ConvolutionHaloTest, RefusesPaddingAsWideAsTheKernel) {
  const ConvolutionLayer layer{.filters = 16, .kernel = 1, .padding = 1};
  World(1).run([&](transport::World& world) {
    test::GridRank rank(world, {});
    const NodeLayout place{.split = {.kind = SplitKind::space},
                           .x = by_group({1, 4, 4, 8}, {}),
                           .y = by_group({1, 6, 6, 16}, {})};
    EXPECT_THROW(static_cast<void>(make_convolution_in_space(rank.context, layer, place, true)),
                 std::invalid_argument);
  });
}

}  // namespace
}  // namespace rondo::train::convolution_halo_test

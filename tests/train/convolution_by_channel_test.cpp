// Convolutions split over channels and filters: every grid against the unsplit layer.

#include <cstdint>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include "train/support/channel_chain.hpp"

namespace rondo::train::convolution_by_channel_test {
namespace {

using tensor::Activation;
using test::Chain;
using test::Measured;

// Kernels of 1, 3, 5, 7, each with strides of 1 and 2; with and without padding, bias and ReLU; one
// image and several; channels and filters that few grids divide evenly.
const std::vector<Measured>& layers() {
  static const std::vector<Measured> all = [] {
    const ConvolutionLayer plain[] = {
        {.filters = 18, .kernel = 1, .stride = 1, .padding = 0},
        {.filters = 20, .kernel = 1, .stride = 2, .padding = 0, .bias = true},
        {.filters = 13, .kernel = 3, .bias = true, .activation = Activation::relu},
        {.filters = 24, .kernel = 3, .stride = 2, .padding = 1, .activation = Activation::relu},
        {.filters = 14, .kernel = 5, .padding = 2, .bias = true},
        {.filters = 15, .kernel = 5, .stride = 2, .padding = 0},
        {.filters = 17, .kernel = 7, .padding = 3, .activation = Activation::relu},
        {.filters = 12, .kernel = 7, .stride = 2, .padding = 2, .bias = true}};
    std::vector<Measured> made;
    std::int64_t c = 12;
    for (const ConvolutionLayer& layer : plain) {
      const std::int64_t n = made.size() % 3 == 0 ? 1 : 3;
      made.emplace_back(Chain{.x = {n, 7, 6, c++}, .layers = {layer}});
    }
    // Where a part has 16 channels and filters, other kernels run.
    made.emplace_back(Chain{.x = {3, 5, 4, 33}, .layers = {{.filters = 36, .bias = true}}});
    return made;
  }();
  return all;
}

void expect_equal(ChannelGrid grid) {
  for (const int groups : {1, 2}) {
    SCOPED_TRACE(test::text_of(grid, groups));
    test::expect_equal(layers(), {grid}, groups);
  }
}

TEST(ConvolutionByChannelTest, StationaryXEqualsTheUnsplitLayer) {
  for (const int p : {2, 3, 4, 6}) expect_equal({.channels = p, .filters = 1});
}

TEST(ConvolutionByChannelTest, StationaryYEqualsTheUnsplitLayer) {
  for (const int p : {2, 3, 4, 6}) expect_equal({.channels = 1, .filters = p});
}

TEST(ConvolutionByChannelTest, StationaryWEqualsTheUnsplitLayer) {
  expect_equal({.channels = 2, .filters = 2});
  expect_equal({.channels = 2, .filters = 3});
  expect_equal({.channels = 3, .filters = 2});
}

TEST(ConvolutionByChannelTest, RefusesLayoutsOtherThanItsOwn) {
  rondo::test::World(4).run([](transport::World& world) {
    tensor::Engine engine;
    GridCommunicators communicators(world.communicator(), {.pr = 4});
    const KernelContext context{engine, communicators, &world.arena()};
    const ConvolutionLayer layer{.filters = 16};
    const LayerSplit split{.kind = SplitKind::channel, .channels = {2, 2}};
    const tensor::Shape extents{2, 4, 4, 16};
    const Partition x = by_channel(extents, {.pr = 4});
    const auto make = [&](const Partition& from, const Partition& to) {
      static_cast<void>(make_convolution_by_channel(context, layer, {split, from, to}, true));
    };

    EXPECT_THROW(make(x, x), std::invalid_argument);
    EXPECT_THROW(make(by_sample(extents, 4), by_sample(extents, 4)), std::invalid_argument);
    EXPECT_NO_THROW(make(x, output_of(x, split.channels, extents)));
  });
}

}  // namespace
}  // namespace rondo::train::convolution_by_channel_test

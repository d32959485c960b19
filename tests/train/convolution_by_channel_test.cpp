// Convolutions split over channels and filters: every grid against the unsplit layer.

#include <vector>

#include <gtest/gtest.h>

#include "train/support/channel_chain.hpp"

namespace rondo::train {
namespace {

using tensor::Activation;
using test::Chain;
using test::Measured;

// Kernels of 1, 3, 5, 7; strides of 1 and 2; with and without padding, bias and ReLU; one picture
// and several; channels and filters that no grid divides evenly.
const std::vector<Measured>& layers() {
  static const std::vector<Measured> all = [] {
    const ConvolutionLayer plain[] = {
        {.filters = 18, .kernel = 1, .stride = 1, .padding = 0},
        {.filters = 20, .kernel = 1, .stride = 2, .padding = 0, .bias = true},
        {.filters = 13, .kernel = 3, .bias = true, .activation = Activation::relu},
        {.filters = 24, .kernel = 3, .stride = 2, .padding = 1, .activation = Activation::relu},
        {.filters = 14, .kernel = 5, .padding = 2, .bias = true},
        {.filters = 12, .kernel = 7, .stride = 2, .padding = 3, .bias = true}};
    std::vector<Measured> made;
    std::int64_t n = 1;
    std::int64_t c = 12;
    for (const ConvolutionLayer& layer : plain) {
      made.emplace_back(Chain{.x = {n, 7, 6, c}, .layers = {layer}});
      n = 4 - n;
      c = c == 23 ? 12 : c + 1;
    }
    return made;
  }();
  return all;
}

void expect_equal(ChannelGrid grid) {
  for (const int groups : {1, 2}) {
    if (grid.ranks() * groups > 8) continue;
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

}  // namespace
}  // namespace rondo::train

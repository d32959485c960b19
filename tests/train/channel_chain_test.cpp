// Convolutions that follow each other without a change of layout between them.

#include <vector>

#include <gtest/gtest.h>

#include "train/support/channel_chain.hpp"

namespace rondo::train::channel_chain_test {
namespace {

using rondo::test::Backend;
using tensor::Activation;
using test::Chain;
using test::Measured;

const ConvolutionLayer first{
    .filters = 14, .kernel = 3, .bias = true, .activation = Activation::relu};
const ConvolutionLayer second{.filters = 18, .kernel = 1, .stride = 2, .padding = 0};
const ConvolutionLayer third{.filters = 13, .kernel = 3, .bias = true};

const std::vector<Measured>& chains_of(std::size_t length) {
  const auto make = [](const std::vector<ConvolutionLayer>& layers) {
    std::vector<Measured> made;
    made.emplace_back(Chain{.x = {1, 6, 5, 12}, .layers = layers});
    made.emplace_back(Chain{.x = {3, 5, 5, 15}, .layers = layers});
    return made;
  };
  static const std::vector<Measured> two = make({first, second});
  static const std::vector<Measured> three = make({first, second, third});
  return length == 2 ? two : three;
}

void expect_equal(const std::vector<ChannelGrid>& grids) {
  for (const int groups : {1, 2}) {
    SCOPED_TRACE("from " + test::text_of(grids.front(), groups));
    test::expect_equal(chains_of(grids.size()), grids, groups);
  }
}

constexpr ChannelGrid x_of(int p) { return {.channels = p, .filters = 1}; }
constexpr ChannelGrid y_of(int p) { return {.channels = 1, .filters = p}; }

TEST(ChannelChainTest, StationaryYFollowsStationaryX) {
  for (const int p : {2, 3, 4}) expect_equal({x_of(p), y_of(p)});
  expect_equal({y_of(4), x_of(4)});
}

TEST(ChannelChainTest, StationaryWFollowsItsTranspose) {
  for (const ChannelGrid grid : {ChannelGrid{2, 2}, ChannelGrid{2, 3}}) {
    expect_equal({grid, grid.transposed()});
  }
}

TEST(ChannelChainTest, ThreeLayersFollowEachOther) {
  expect_equal({y_of(3), y_of(3), y_of(3)});
  expect_equal({x_of(4), y_of(4), x_of(4)});
  expect_equal({{2, 3}, {3, 2}, {2, 3}});
}

// What an odd number of W layers leaves behind is no obstacle for any of them.
TEST(ChannelChainTest, AnyGridFollowsStationaryW) {
  expect_equal({{2, 2}, x_of(4), y_of(4)});
  expect_equal({{2, 2}, {2, 2}, {2, 2}});
}

// With a few channels and filters, most ranks have nothing to compute.
const std::vector<Measured>& narrow_chains() {
  static const std::vector<Measured> all = [] {
    const std::vector<ConvolutionLayer> layers{
        {.filters = 2, .kernel = 3, .bias = true, .activation = Activation::relu},
        {.filters = 3, .kernel = 3, .bias = true}};
    std::vector<Measured> made;
    made.emplace_back(Chain{.x = {2, 4, 4, 3}, .layers = layers});
    return made;
  }();
  return all;
}

TEST(ChannelChainTest, RanksWithoutChannelsOrFiltersOnlyCommunicate) {
  test::expect_equal(narrow_chains(), {x_of(4), y_of(4)}, 1);
  test::expect_equal(narrow_chains(), {y_of(4), x_of(4)}, 1);
  test::expect_equal(narrow_chains(), {{2, 3}, {3, 2}}, 1);
}

TEST(ChannelChainTest, NodesAreNoObstacle) {
  for (const Backend backend : {Backend::shm_nodes, Backend::hierarchy}) {
    SCOPED_TRACE(rondo::test::name_of(backend));
    test::expect_equal(chains_of(2), {x_of(3), y_of(3)}, 2, backend);
    test::expect_equal(chains_of(2), {{2, 2}, {2, 2}}, 1, backend);
    test::expect_equal(narrow_chains(), {{2, 3}, {3, 2}}, 1, backend);
  }
}

}  // namespace
}  // namespace rondo::train::channel_chain_test

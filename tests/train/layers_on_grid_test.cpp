// Layers split over samples, space, channels, filters and outputs, alone and one after another,
// against the same layers where nothing is split: what they give, and what they send.

#include <array>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/train/model.hpp>
#include <rondo/transport/world.hpp>

#include "config/grid_choice.hpp"
#include "layers/split_kernels.hpp"
#include "support/world.hpp"
#include "train/support/by_space.hpp"
#include "train/support/layers_on_grid.hpp"

namespace rondo::train::layers_on_grid_test {
namespace {

using rondo::test::Backend;
using rondo::test::World;
using test::Chain;
using test::measured;
using test::Measured;
using test::Splits;

constexpr auto relu = tensor::Activation::relu;

constexpr LayerSplit sample{};
constexpr LayerSplit replica{.kind = SplitKind::replica};
constexpr LayerSplit space(int h, int w) { return {.kind = SplitKind::space, .h = h, .w = w}; }
constexpr LayerSplit channel(int channels, int filters) {
  return {.kind = SplitKind::channel, .channels = {channels, filters}};
}
constexpr LayerSplit tiles(int h, int w, int channels, int filters) {
  return {.kind = SplitKind::space_and_channel, .h = h, .w = w, .channels = {channels, filters}};
}

// The chains.

/// A convolution alone.
Chain alone(tensor::Shape x, const ConvolutionLayer& layer) { return {.x = x, .layers = {layer}}; }

/// Each kernel, stride and padding by itself.
void add_squares(tensor::Shape x, std::int64_t filters, std::vector<Chain>& chains) {
  for (const std::int64_t kernel : {1, 3, 5, 7}) {
    for (const std::int64_t stride : {1, 2}) {
      for (const std::int64_t padding : {std::int64_t{0}, (kernel - 1) / 2}) {
        chains.push_back(
            alone(x, {.filters = filters, .kernel = kernel, .stride = stride, .padding = padding}));
        if (kernel == 1) break;
      }
    }
  }
}

/// Besides, the features of other layers of networks: a bias and an activation, images in colour,
/// channels enough for the kernels of large layers, rows enough to compute inner ones first, less
/// rows than ranks or than a kernel has, and no image.
const std::vector<Measured>& convolutions() {
  static const std::vector<Measured> all = [] {
    std::vector<Chain> chains = {
        alone({3, 14, 14, 3}, {.filters = 16, .kernel = 7, .stride = 2, .padding = 3}),
        alone({3, 9, 8, 8}, {.filters = 16, .bias = true}),
        alone({1, 13, 7, 16},
              {.filters = 24, .kernel = 5, .padding = 2, .bias = true, .activation = relu}),
        alone({3, 9, 13, 16}, {.filters = 8, .stride = 2, .activation = relu}),
        alone({1, 16, 12, 32}, {.filters = 32}),
        alone({2, 12, 12, 16}, {.filters = 16, .kernel = 1, .stride = 2, .padding = 0}),
        alone({1, 23, 24, 8}, {.filters = 8, .kernel = 5, .padding = 2, .bias = true}),
        alone({1, 24, 24, 8}, {.filters = 16}),
        alone({1, 30, 28, 8}, {.filters = 8, .kernel = 7, .stride = 2, .padding = 3}),
        alone({1, 21, 16, 8}, {.filters = 8, .padding = 0, .activation = relu}),
        alone({2, 3, 3, 16}, {.filters = 16}),
        alone({2, 4, 5, 8}, {.filters = 8, .kernel = 7, .padding = 3}),
        alone({0, 9, 8, 8}, {.filters = 8, .bias = true})};
    add_squares({1, 13, 9, 8}, 16, chains);
    add_squares({3, 9, 7, 16}, 8, chains);
    return measured(chains);
  }();
  return all;
}

/// Kernels of 1, 3, 5, 7, each with strides of 1 and 2; with and without padding, bias and ReLU;
/// one image, several and none; channels and filters that few grids divide evenly. Where a part has
/// 16 channels and filters, other kernels run.
const std::vector<Measured>& convolutions_by_channel() {
  static const std::vector<Measured> all = measured(
      {alone({1, 7, 6, 12}, {.filters = 18, .kernel = 1, .padding = 0}),
       alone({3, 7, 6, 13}, {.filters = 20, .kernel = 1, .stride = 2, .padding = 0, .bias = true}),
       alone({3, 7, 6, 14}, {.filters = 13, .bias = true, .activation = relu}),
       alone({1, 7, 6, 15}, {.filters = 24, .stride = 2, .activation = relu}),
       alone({3, 7, 6, 16}, {.filters = 14, .kernel = 5, .padding = 2, .bias = true}),
       alone({3, 7, 6, 17}, {.filters = 15, .kernel = 5, .stride = 2, .padding = 0}),
       alone({1, 7, 6, 18}, {.filters = 17, .kernel = 7, .padding = 3, .activation = relu}),
       alone({3, 7, 6, 19}, {.filters = 12, .kernel = 7, .stride = 2, .padding = 2, .bias = true}),
       alone({3, 5, 4, 33}, {.filters = 36, .bias = true}),
       alone({0, 5, 4, 16}, {.filters = 16, .bias = true, .activation = relu})});
  return all;
}

/// The first of three convolutions, one after another.
template <std::ptrdiff_t length>
const std::vector<Measured>& rows_of() {
  static const std::vector<Measured> all = [] {
    std::vector<LayerKind> layers = {
        ConvolutionLayer{.filters = 14, .bias = true, .activation = relu},
        ConvolutionLayer{.filters = 18, .kernel = 1, .stride = 2, .padding = 0},
        ConvolutionLayer{.filters = 13, .bias = true}};
    layers.erase(layers.begin() + length, layers.end());
    return measured({Chain{.x = {1, 6, 5, 12}, .layers = layers},
                     Chain{.x = {3, 5, 5, 15}, .layers = layers},
                     Chain{.x = {3, 13, 9, 8}, .layers = layers}});
  }();
  return all;
}

/// With a few channels and filters, most ranks have nothing to compute.
const std::vector<Measured>& narrow() {
  static const std::vector<Measured> all =
      measured({Chain{.x = {2, 4, 4, 3},
                      .layers = {ConvolutionLayer{.filters = 2, .bias = true, .activation = relu},
                                 ConvolutionLayer{.filters = 3, .bias = true}}}});
  return all;
}

/// 1x1 kernels with a stride want whole vectors of channels on some processors.
const std::vector<Measured>& for_three_tiles() {
  static const std::vector<Measured> all =
      measured({alone({3, 10, 7, 16}, {.filters = 24, .kernel = 1, .stride = 2, .padding = 0}),
                alone({3, 10, 7, 16}, {.filters = 16, .stride = 2, .bias = true})});
  return all;
}

/// Averages of windows with 4, 6 or 9 pixels, and means of 32 or 4: their gradients are whole
/// numbers for multiples of this.
constexpr float divisible = 288.0F;

/// A convolution, whose layout others follow, and such a layer.
Chain followed(tensor::Shape x, LayerKind layer, bool exact = true) {
  return {.x = x,
          .layers = {ConvolutionLayer{.filters = 16, .kernel = 1, .padding = 0}, std::move(layer)},
          .dy_scale = exact ? divisible : 1.0F,
          .exact = exact};
}

/// Few channels: then several pixels of a window are the largest.
const std::vector<Measured>& poolings() {
  static const std::vector<Measured> all = [] {
    constexpr auto max = tensor::PoolingKind::max;
    constexpr auto average = tensor::PoolingKind::average;
    std::vector<Chain> chains;
    for (const tensor::Shape& x : {tensor::Shape{1, 13, 9, 4}, {3, 7, 12, 4}}) {
      for (const PoolingLayer& layer :
           {PoolingLayer{.kind = max},
            {.kind = max, .window = 3, .stride = 2},
            {.kind = max, .window = 3, .stride = 2, .padding = 1},
            {.kind = max, .window = 3, .stride = 1, .padding = 1},
            {.kind = average},
            {.kind = average, .window = 3, .stride = 2, .padding = 1},
            {.kind = average, .window = 3, .stride = 1, .padding = 1}}) {
        chains.push_back(followed(x, layer));
      }
    }
    return measured(chains);
  }();
  return all;
}

/// Also of images with less rows than ranks: those without pixels have the means all the same.
const std::vector<Measured>& means() {
  static const std::vector<Measured> all =
      measured({followed({1, 8, 4, 8}, GlobalAveragePoolingLayer()),
                followed({3, 4, 8, 8}, GlobalAveragePoolingLayer()),
                followed({2, 2, 2, 8}, GlobalAveragePoolingLayer())});
  return all;
}

const std::vector<Measured>& batch_norms() {
  static const std::vector<Measured> all =
      measured({followed({3, 5, 4, 8}, BatchNormLayer(), false),
                followed({2, 3, 5, 8}, BatchNormLayer{.activation = relu}, false)});
  return all;
}

/// Images and vectors; outputs that no replica divides evenly, and less than ranks.
const std::vector<Measured>& connected() {
  const auto made = [](tensor::Shape x, const FullyConnectedLayer& layer) {
    return Chain{.x = x, .layers = {layer}};
  };
  static const std::vector<Measured> all = measured(
      {made({6, 1, 1, 32}, {.outputs = 24, .activation = relu}),
       made({5, 3, 2, 16}, {.outputs = 19}), made({1, 2, 2, 8}, {.outputs = 2, .activation = relu}),
       made({0, 2, 2, 8}, {.outputs = 6})});
  return all;
}

/// Large enough that an allreduce goes round rings.
const std::vector<Measured>& widely_connected() {
  static const std::vector<Measured> all =
      measured({Chain{.x = {16, 1, 1, 3072}, .layers = {FullyConnectedLayer{.outputs = 48}}}});
  return all;
}

/// Extents that all splits below divide evenly.
const std::vector<Measured>& even_convolution() {
  static const std::vector<Measured> all =
      measured({alone({4, 6, 6, 24}, {.filters = 48, .stride = 2, .bias = true})});
  return all;
}

// The table: every chain of a family, on ranks that split the layers so.

enum class Sends : std::uint8_t {
  anything,
  told,   ///< all ranks together what the layers say
  evenly  ///< besides, each rank as much
};

struct Case {
  std::string name;
  const std::vector<Measured>& (*chains)();  // made for tests that run
  std::vector<Splits> splits;
  std::vector<Backend> backends = {Backend::shm};
  Sends sends = Sends::anything;
};

/// On as many ranks as each of the splits has parts.
std::vector<Splits> each(const std::vector<LayerSplit>& splits) {
  std::vector<Splits> all;
  for (const LayerSplit& split : splits) all.push_back({split.ranks(), {split}});
  return all;
}

const std::vector<LayerSplit> spaces = {space(1, 2), space(2, 1), space(3, 1),
                                        space(1, 3), space(2, 2), space(1, 4),
                                        space(4, 1), space(2, 3), space(3, 2)};
const std::vector<Backend> of_nodes = {Backend::shm_nodes, Backend::hierarchy};
const std::vector<Backend> both = {Backend::shm, Backend::shm_nodes};

/// How layers without weights lie behind a convolution.
std::vector<Splits> layouts() {
  std::vector<Splits> all = each(spaces);
  for (const LayerSplit& split :
       {sample, replica, channel(2, 2), channel(4, 1), tiles(2, 1, 2, 1), tiles(1, 2, 1, 2)}) {
    all.push_back({4, {split}});
  }
  return all;
}

std::vector<Case> convolution_cases() {
  return {
      {"InSpace", convolutions, each(spaces)},
      {"OverSamples", convolutions, {{2, {sample}}, {3, {sample}}, {2, {replica}}}},
      {"ByChannel",
       convolutions_by_channel,
       each({channel(2, 1), channel(3, 1), channel(4, 1), channel(6, 1), channel(1, 2),
             channel(1, 3), channel(1, 4), channel(1, 6), channel(2, 2), channel(2, 3),
             channel(3, 2)}),
       {Backend::shm},
       Sends::told},
      {"InTiles", convolutions_by_channel,
       each({tiles(2, 1, 2, 1), tiles(2, 1, 1, 2), tiles(2, 1, 2, 2), tiles(1, 2, 2, 1),
             tiles(1, 2, 1, 2), tiles(1, 2, 2, 2), tiles(2, 2, 2, 1), tiles(2, 2, 1, 2),
             tiles(2, 1, 1, 3)})},
      {"InThreeTiles", for_three_tiles,
       each({tiles(3, 1, 2, 1), tiles(3, 1, 1, 2), tiles(1, 3, 2, 1), tiles(1, 3, 1, 2)})},
      // Between nodes.
      {"InSpaceOnNodes",
       convolutions,
       each({space(2, 1), space(1, 3), space(2, 2), space(3, 2)}),
       {Backend::shm_nodes},
       Sends::told},
      {"InTilesOnNodes",
       convolutions_by_channel,
       each({tiles(2, 1, 2, 1), tiles(2, 1, 1, 2), tiles(1, 2, 2, 2), tiles(3, 1, 1, 2)}),
       {Backend::shm_nodes},
       Sends::told},
      {"InTilesOnTwoNodes",
       convolutions_by_channel,
       each({tiles(2, 1, 1, 2), tiles(1, 2, 2, 1)}),
       {Backend::hierarchy}},
      {"ByChannelEvenly", even_convolution,
       each({channel(4, 1), channel(1, 4), channel(2, 2), channel(2, 3), channel(1, 1)}), both,
       Sends::evenly},
  };
}

/// A grid follows its transpose, and any grid the layout that an odd number of W layers leaves.
std::vector<Case> chain_cases() {
  const LayerSplit w = channel(2, 2);
  return {
      {"TwoByChannel",
       rows_of<2>,
       {{2, {channel(2, 1), channel(1, 2)}},
        {3, {channel(3, 1), channel(1, 3)}},
        {4, {channel(4, 1), channel(1, 4)}},
        {4, {channel(1, 4), channel(4, 1)}},
        {4, {w, w}},
        {6, {channel(2, 3), channel(3, 2)}}}},
      {"ThreeByChannel",
       rows_of<3>,
       {{3, {channel(1, 3), channel(1, 3), channel(1, 3)}},
        {4, {channel(4, 1), channel(1, 4), channel(4, 1)}},
        {6, {channel(2, 3), channel(3, 2), channel(2, 3)}},
        {4, {w, channel(4, 1), channel(1, 4)}},
        {4, {w, w, w}}}},
      {"RanksWithoutChannels",
       narrow,
       {{4, {channel(4, 1), channel(1, 4)}},
        {4, {channel(1, 4), channel(4, 1)}},
        {6, {channel(2, 3), channel(3, 2)}}}},
      {"TwoByChannelOnNodes",
       rows_of<2>,
       {{3, {channel(3, 1), channel(1, 3)}}, {4, {w, w}}},
       of_nodes},
      {"RanksWithoutChannelsOnNodes", narrow, {{6, {channel(2, 3), channel(3, 2)}}}, of_nodes},
      {"TwoInTiles", rows_of<2>, {{4, {tiles(2, 1, 2, 1), tiles(2, 1, 1, 2)}}}},
      {"ThreeInTiles",
       rows_of<3>,
       {{4, {tiles(1, 2, 1, 2), tiles(1, 2, 1, 2), tiles(1, 2, 2, 1)}},
        {8, {tiles(2, 1, 2, 2), tiles(2, 1, 2, 2), tiles(2, 1, 1, 4)}}}},
      {"OneInSpace", rows_of<1>, each({space(3, 1), space(2, 2), space(1, 2)})},
      {"TwoInSpace",
       rows_of<2>,
       {{3, {space(3, 1), space(3, 1)}}, {4, {space(2, 2), space(2, 2)}}}},
      {"ThreeInSpace",
       rows_of<3>,
       {{3, {space(3, 1), space(3, 1), space(3, 1)}},
        {4, {space(2, 2), space(2, 2), space(2, 2)}}}},
      // With changes of layout on the way.
      {"ThreeInAnotherLayoutEach",
       rows_of<3>,
       {{4, {space(4, 1), space(2, 2), space(1, 4)}},
        {6, {space(2, 3), sample, space(3, 2)}},
        {2, {space(2, 1), replica, sample}},
        {2, {sample, space(1, 2), replica}},
        {4, {channel(2, 2), space(2, 2), tiles(2, 1, 1, 2)}}},
       {Backend::shm_nodes},
       Sends::told},
  };
}

std::vector<Case> other_cases() {
  std::vector<Splits> outputs;
  for (const int ranks : {1, 2, 3, 4, 6}) outputs.push_back({ranks, {channel(1, ranks)}});
  return {
      {"Poolings", poolings, layouts()},
      {"PoolingsOnNodes",
       poolings,
       each({space(2, 1), space(2, 2)}),
       {Backend::shm_nodes},
       Sends::told},
      {"Means", means, layouts()},
      {"BatchNorms", batch_norms, layouts()},
      {"Connected", connected, outputs},
      {"ConnectedOverSamples", connected, {{3, {sample}}, {2, {replica}}}},
      {"WidelyConnected", widely_connected, each({channel(1, 2), channel(1, 3), channel(1, 4)}),
       both, Sends::evenly},
  };
}

class LayersOnGridTest : public testing::TestWithParam<Case> {};

TEST_P(LayersOnGridTest, GiveAndSendWhatTheyShould) {
  const Case& tested = GetParam();
  for (const Backend backend : tested.backends) {
    for (const Splits& splits : tested.splits) {
      std::string trace = rondo::test::name_of(backend);
      for (const LayerSplit& split : splits.of_layers) trace += ", " + to_text(split);
      SCOPED_TRACE(trace);
      for (const test::Traffic& traffic : test::expect_equal(tested.chains(), splits, backend)) {
        if (tested.sends == Sends::anything) continue;
        EXPECT_EQ(traffic.all, traffic.told);
        EXPECT_TRUE(traffic.even || tested.sends != Sends::evenly);
      }
    }
  }
}

const auto name_of = [](const testing::TestParamInfo<Case>& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(Convolutions, LayersOnGridTest, testing::ValuesIn(convolution_cases()),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Chains, LayersOnGridTest, testing::ValuesIn(chain_cases()), name_of);
INSTANTIATE_TEST_SUITE_P(Others, LayersOnGridTest, testing::ValuesIn(other_cases()), name_of);

// Closed forms of what layers say that they send.

std::uint64_t elements_of(const LayerKind& layer, const LayerSplit& split, tensor::Shape x,
                          tensor::Shape y) {
  const Partition from =
      on_grid(x, {.pr = split.ranks()}, {.h = split.h, .w = split.w, .c = split.channels.ranks()});
  return layer->traffic({split, from, output_of(from, split.channels, y)}, true).elements();
}

// A row or column of x and of dy goes over each cut, to each rank that has gathered the channels.
// Rows and columns are even, those of a 3x3 kernel: x and y are 6 x 6, 3 rows or columns a tile.
TEST(LayersTrafficTest, OfChannelsIsWhatTheFormulasSay) {
  const tensor::Shape x{2, 6, 6, 8};
  const tensor::Shape y{2, 6, 6, 16};
  const LayerKind layer = ConvolutionLayer{.filters = 16};
  for (const auto& [p_c, p_f] : {std::pair(4, 1), {1, 4}, {2, 2}, {2, 3}, {1, 1}, {2, 1}}) {
    const auto sums = static_cast<std::uint64_t>(2 * ((p_f - 1) * x.size() + (p_c - 1) * y.size()));
    const std::int64_t row = 2 * 2 * 6;  // of 2 images, both ways, of one channel
    const auto halos = static_cast<std::uint64_t>(row * (p_f * x.c + p_c * y.c));

    EXPECT_EQ(elements_of(layer, channel(p_c, p_f), x, y), sums);
    EXPECT_EQ(elements_of(layer, tiles(2, 1, p_c, p_f), x, y), sums + halos);
    EXPECT_EQ(elements_of(layer, tiles(1, 2, p_c, p_f), x, y), sums + halos);
  }
}

// y is allgathered, dx allreduced.
TEST(LayersTrafficTest, OfOutputsIsWhatTheFormulaSays) {
  const LayerKind layer = FullyConnectedLayer{.outputs = 48};
  for (const int pr : {2, 3, 4}) {
    const NodeLayout at{channel(1, pr), by_replica({16, 1, 1, 72}, {.pr = pr}),
                        by_replica({16, 1, 1, 48}, {.pr = pr})};
    EXPECT_EQ(layer->traffic(at, true).elements(),
              static_cast<std::uint64_t>((pr - 1) * 16 * 48 + 2 * (pr - 1) * 16 * 72));
  }
}

TEST(HalosTest, OfDyLeaveWithTheFirstHalfOfBackwardUnlessNobodyWantsTheGradientOfTheInput) {
  const test::WholeChain whole(alone({1, 8, 6, 8}, {.filters = 16}), test::Numbers::whole);
  for (const bool input_gradient : {true, false}) {
    World(Backend::shm_nodes, 2).run([&](transport::World& world) {
      test::GridRank rank(world, {.pr = 2});
      test::ChainOnRank part(rank, whole, {2, {space(2, 1)}}, input_gradient);

      const test::Sent sent = part.run(whole);

      EXPECT_EQ(sent.parameters, input_gradient ? 6 * 16 * 4 : 0);
      EXPECT_EQ(sent.input, 0);
    });
  }
}

// The input of a model has no gradient.
TEST(HalosTest, OfAPoolingStayWhereNobodyWantsTheGradientOfTheInput) {
  const Partition x = by_space({1, 8, 8, 8}, {.pr = 2}, 2, 1);
  World(2).run([&](transport::World& world) {
    test::GridRank rank(world, {.pr = 2});
    const PoolingLayer layer{.window = 3, .stride = 1, .padding = 1};
    const auto kernel = make_pooling_in_space(rank.context, layer, {.x = x, .y = x});
    tensor::Tensor part(x.box_of(world.rank()).shape());
    kernel->forward_training({.x = part.view(), .y = part.view()}, {});
    const auto before = world.counters().sent_messages;

    kernel->backward_input({.dy = part.view()});

    EXPECT_EQ(world.counters().sent_messages, before);
  });
}

// Degenerate splits.

/// The bits of each rank.
std::vector<std::vector<float>> bits_of(const test::WholeChain& whole, const LayerSplit& split) {
  std::vector<std::vector<float>> bits(4);
  World(4).run([&](transport::World& world) {
    test::GridRank rank(world, {.pr = 4});
    test::ChainOnRank part(rank, whole, {4, {split}});
    part.run(whole);
    bits[static_cast<std::size_t>(world.rank())] = part.results();
  });
  return bits;
}

TEST(DegenerateSplitTest, OneTileOrOnePartOfTheChannelsGivesTheBitsOfTheSplitWithoutIt) {
  const test::WholeChain whole(
      alone({3, 9, 8, 16}, {.filters = 16, .bias = true, .activation = relu}), test::Numbers::real);
  const std::pair<LayerSplit, LayerSplit> pairs[] = {{tiles(1, 1, 4, 1), channel(4, 1)},
                                                     {tiles(1, 1, 1, 4), channel(1, 4)},
                                                     {tiles(1, 1, 2, 2), channel(2, 2)},
                                                     {tiles(4, 1, 1, 1), space(4, 1)},
                                                     {tiles(2, 2, 1, 1), space(2, 2)}};
  for (const auto& [degenerate, usual] : pairs) {
    EXPECT_EQ(bits_of(whole, degenerate), bits_of(whole, usual)) << to_text(degenerate);
  }
}

// Refusals.

TEST(LayersOnGridRefusalTest, LayoutsAndTypesWithoutAKernelAreRefused) {
  World(4).run([](transport::World& world) {
    test::GridRank rank(world, {.pr = 4});
    const auto refused = [&](const LayerKind& layer, const NodeLayout& at,
                             tensor::DataType type = tensor::DataType::f32) {
      KernelContext context = rank.context;
      context.type = type;
      try {
        static_cast<void>(layer->grid_kernel(context, at, true));
        return false;
      } catch (const std::invalid_argument&) {
        return true;
      }
    };
    const auto of = [](std::int64_t channels) { return tensor::Shape{4, 4, 4, channels}; };
    const LayerKind layer = ConvolutionLayer{.filters = 16};
    const LayerSplit w = channel(2, 2);
    const Partition x = by_channel(of(16), {.pr = 4});
    EXPECT_FALSE(refused(layer, {w, x, output_of(x, w.channels, of(16))}));
    EXPECT_TRUE(refused(layer, {w, x, x}));
    EXPECT_TRUE(refused(layer, {w, by_sample(of(16), 4), by_sample(of(16), 4)}));

    const auto in_tiles = [](std::int64_t channels) {
      return on_grid({2, 4, 4, channels}, {.pr = 4}, {.h = 2, .c = 2});
    };
    const LayerKind narrow_layer = ConvolutionLayer{.filters = 2};
    const LayerSplit rows = tiles(2, 1, 1, 2);
    EXPECT_FALSE(refused(narrow_layer, {rows, in_tiles(2), in_tiles(2)}));
    EXPECT_TRUE(refused(narrow_layer, {tiles(1, 2, 1, 2), in_tiles(2), in_tiles(2)}));
    EXPECT_TRUE(refused(ConvolutionLayer{.filters = 1}, {rows, in_tiles(1), in_tiles(1)}));
    EXPECT_TRUE(refused(narrow_layer, {rows, in_tiles(2), in_tiles(2)}, tensor::DataType::bf16));

    // Padding as wide as the kernel.
    EXPECT_TRUE(refused(ConvolutionLayer{.filters = 16, .kernel = 1, .padding = 1},
                        {space(4, 1), by_space({1, 4, 4, 8}, {.pr = 4}, 4, 1),
                         by_space({1, 6, 6, 16}, {.pr = 4}, 4, 1)}));
    // Ranks of a replica that hold different samples.
    EXPECT_TRUE(refused(FullyConnectedLayer{.outputs = 6},
                        {channel(1, 4), by_sample({4, 1, 1, 8}, 4), by_sample({4, 1, 1, 6}, 4)}));
    // Means that lie elsewhere.
    EXPECT_TRUE(refused(GlobalAveragePoolingLayer(), {space(4, 1), by_space(of(8), {.pr = 4}, 4, 1),
                                                      by_sample({4, 1, 1, 8}, 4)}));
  });
}

}  // namespace
}  // namespace rondo::train::layers_on_grid_test

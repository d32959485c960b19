// Convolutions split over channels and filters, within whole images or within tiles of them, alone
// and one after another, against the unsplit ones, and the elements that they send.

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "train/support/by_space.hpp"
#include "train/support/channel_chain.hpp"

namespace rondo::train::convolution_by_channel_test {
namespace {

using rondo::test::Backend;
using rondo::test::World;
using tensor::Activation;
using test::Chain;
using test::Measured;
using test::Numbers;
using test::Tiles;

// Convolutions split over channels and filters: every grid against the unsplit layer.

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

constexpr ChannelGrid x_of(int p) { return {.channels = p, .filters = 1}; }
constexpr ChannelGrid y_of(int p) { return {.channels = 1, .filters = p}; }

TEST(ConvolutionByChannelTest, EqualsTheUnsplitLayerOnEveryGrid) {
  for (const ChannelGrid grid : {x_of(2),
                                 x_of(3),
                                 x_of(4),
                                 x_of(6),
                                 y_of(2),
                                 y_of(3),
                                 y_of(4),
                                 y_of(6),
                                 ChannelGrid{2, 2},
                                 {2, 3},
                                 {3, 2}}) {
    for (const int replicas : {1, 2}) {
      SCOPED_TRACE(test::text_of(grid, replicas));
      test::expect_equal(layers(), {grid}, replicas);
    }
  }
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

// Convolutions that follow each other without a change of layout between them.

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

// A grid follows its transpose, and any grid the layout that an odd number of W layers leaves.
TEST(ChannelChainTest, LayersFollowEachOtherWithoutAChangeOfLayout) {
  const std::vector<ChannelGrid> chains[] = {{x_of(2), y_of(2)},
                                             {x_of(3), y_of(3)},
                                             {x_of(4), y_of(4)},
                                             {y_of(4), x_of(4)},
                                             {{2, 2}, {2, 2}},
                                             {{2, 3}, {3, 2}},
                                             {y_of(3), y_of(3), y_of(3)},
                                             {x_of(4), y_of(4), x_of(4)},
                                             {{2, 3}, {3, 2}, {2, 3}},
                                             {{2, 2}, x_of(4), y_of(4)},
                                             {{2, 2}, {2, 2}, {2, 2}}};
  for (const std::vector<ChannelGrid>& grids : chains) {
    for (const int replicas : {1, 2}) {
      SCOPED_TRACE("from " + test::text_of(grids.front(), replicas));
      test::expect_equal(chains_of(grids.size()), grids, replicas);
    }
  }
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

// Convolutions split in space and over channels and filters at once.

constexpr Tiles rows{.h = 2};
constexpr Tiles columns{.w = 2};
constexpr Tiles quarters{.h = 2, .w = 2};

void expect_equal_in(Tiles tiles, ChannelGrid grid, int replicas, Backend backend = Backend::shm) {
  SCOPED_TRACE(test::text_of(grid, replicas) + ", " + std::to_string(tiles.h) + " x " +
               std::to_string(tiles.w) + " tiles");
  test::expect_equal(layers(), {grid}, replicas, backend, tiles);
}

TEST(ConvolutionInTilesTest, EqualsTheUnsplitLayerOnEveryGrid) {
  for (const Tiles tiles : {rows, columns}) {
    for (const ChannelGrid grid : {x_of(2), y_of(2), ChannelGrid{2, 2}}) {
      expect_equal_in(tiles, grid, 1);
    }
  }
  expect_equal_in(rows, x_of(2), 2);
  expect_equal_in(columns, y_of(2), 2);
  expect_equal_in(quarters, x_of(2), 1);
  expect_equal_in(quarters, y_of(2), 1);
  expect_equal_in(rows, y_of(3), 1);
}

// 1x1 kernels with a stride want whole vectors of channels on some processors.
TEST(ConvolutionInTilesTest, ThreeTilesEqualTheUnsplitLayer) {
  std::vector<Measured> measured;
  for (const ConvolutionLayer& layer :
       {ConvolutionLayer{.filters = 24, .kernel = 1, .stride = 2, .padding = 0},
        {.filters = 16, .stride = 2, .bias = true}}) {
    measured.emplace_back(Chain{.x = {3, 10, 7, 16}, .layers = {layer}});
  }

  for (const Tiles tiles : {Tiles{.h = 3}, Tiles{.w = 3}}) {
    for (const ChannelGrid grid : {x_of(2), y_of(2)}) {
      test::expect_equal(measured, {grid}, 1, Backend::shm, tiles);
    }
  }
}

TEST(ConvolutionInTilesTest, NodesAreNoObstacle) {
  for (const Backend backend : {Backend::shm_nodes, Backend::hierarchy}) {
    SCOPED_TRACE(rondo::test::name_of(backend));
    expect_equal_in(rows, y_of(2), 1, backend);
    expect_equal_in(columns, x_of(2), 1, backend);
  }
}

TEST(ConvolutionInTilesTest, LayersFollowEachOtherWithoutAChangeOfLayout) {
  const auto follow = [](Tiles tiles, const std::vector<ChannelGrid>& grids) {
    test::expect_equal(chains_of(grids.size()), grids, 1, Backend::shm, tiles);
  };
  follow(rows, {x_of(2), y_of(2)});
  follow(columns, {y_of(2), y_of(2), x_of(2)});
  follow(rows, {{2, 2}, {2, 2}, y_of(4)});
}

/// The results of one rank of 4 for real numbers.
struct Given {
  std::vector<float> y = {};
  std::vector<float> dx = {};
  std::vector<float> gradients = {};

  [[nodiscard]] bool operator==(const Given&) const = default;
};

/// By the kernel that make(context) makes, on each rank's parts of a layer that `place` splits.
template <class Make>
std::vector<Given> given_by(const test::WholeLayer& whole, const NodeLayout& place,
                            std::size_t parameters, Make make) {
  std::vector<Given> given(4);
  World(4).run([&](transport::World& world) {
    tensor::Engine engine;
    GridCommunicators communicators(world.communicator(), {.pr = 4});
    const auto kernel = make(KernelContext{engine, communicators, &world.arena()});
    const auto part_of = [&](const tensor::Tensor& array, const Partition& partition) {
      return test::part_of(array, partition.box_of(world.rank()), &world.arena());
    };
    test::WholeLayer own{.x = part_of(whole.x, place.x),
                         .dy = part_of(whole.dy, place.y),
                         .parameters = whole.parameters,
                         .y = part_of(whole.y, place.y),
                         .dx = part_of(whole.dx, place.x),
                         .gradients = std::vector<float>(parameters)};
    own.parameters.resize(parameters);
    test::run(*kernel, own);
    given[static_cast<std::size_t>(world.rank())] = {{own.y.span().begin(), own.y.span().end()},
                                                     {own.dx.span().begin(), own.dx.span().end()},
                                                     own.gradients};
  });
  return given;
}

const ConvolutionLayer degenerate{.filters = 16, .bias = true, .activation = Activation::relu};
constexpr tensor::Shape degenerate_input{3, 9, 8, 16};

TEST(ConvolutionInTilesTest, OneTileGivesTheBitsOfASplitByChannelAlone) {
  const test::WholeLayer whole =
      test::make_whole_layer(degenerate, degenerate_input, Numbers::real);
  for (const ChannelGrid grid : {x_of(4), y_of(4), ChannelGrid{2, 2}}) {
    const Partition x = by_channel(degenerate_input, {.pr = 4});
    const Partition y = output_of(x, grid, whole.y.shape());
    const auto by = [&](SplitKind kind) {
      const NodeLayout place{{.kind = kind, .channels = grid}, x, y};
      return given_by(whole, place, 16 * 16 * 9 / 4 + 4, [&](const KernelContext& context) {
        return make_convolution_by_channel(context, degenerate, place, true);
      });
    };

    EXPECT_EQ(by(SplitKind::space_and_channel), by(SplitKind::channel));
  }
}

TEST(ConvolutionInTilesTest, OnePartOfTheChannelsGivesTheBitsOfASplitInSpaceAlone) {
  const test::WholeLayer whole =
      test::make_whole_layer(degenerate, degenerate_input, Numbers::real);
  for (const Tiles tiles : {Tiles{4, 1}, quarters}) {
    const Partition x = by_space(degenerate_input, {.pr = 4}, tiles.h, tiles.w);
    const auto by = [&](SplitKind kind, auto make) {
      const NodeLayout place{
          {.kind = kind, .h = tiles.h, .w = tiles.w}, x, x.with_extents(whole.y.shape())};
      return given_by(whole, place, 16 * 16 * 9 + 16, [&](const KernelContext& context) {
        return make(context, degenerate, place, true);
      });
    };

    EXPECT_EQ(by(SplitKind::space_and_channel, make_convolution_by_channel),
              by(SplitKind::space, make_convolution_in_space));
  }
}

TEST(ConvolutionInTilesTest, RefusesWhatItHasNoKernelFor) {
  World(4).run([](transport::World& world) {
    tensor::Engine engine;
    GridCommunicators communicators(world.communicator(), {.pr = 4});
    const auto make = [&](Tiles tiles, std::int64_t channels, tensor::DataType type) {
      const KernelContext context{
          .engine = engine, .communicators = communicators, .memory = &world.arena(), .type = type};
      const Partition x = on_grid({2, 4, 4, channels}, {.pr = 4}, {.h = 2, .c = 2});
      const NodeLayout place{test::split_of(y_of(2), tiles), x, x};
      static_cast<void>(make_convolution_by_channel(context, {.filters = channels}, place, true));
    };
    using tensor::DataType;

    EXPECT_NO_THROW(make(rows, 2, DataType::f32));
    EXPECT_THROW(make(columns, 2, DataType::f32), std::invalid_argument);
    EXPECT_THROW(make(rows, 1, DataType::f32), std::invalid_argument);
    EXPECT_THROW(make(rows, 2, DataType::bf16), std::invalid_argument);
  });
}

// Elements that layers split over channels, filters and outputs send, against the closed forms.

/// Bytes that crossed between ranks on this rank's account: loads and stores inside a node,
/// messages between nodes.
std::int64_t bytes_of(const transport::World& world) {
  const transport::Counters counters = world.counters();
  return static_cast<std::int64_t>(counters.moved_bytes() + counters.sent_bytes);
}

/// Elements that a rank sends for forward and backward of a convolution, times the ranks;
/// `replicas` replicas have the samples of `x` and `y` together.
std::int64_t elements_of_all(ChannelGrid grid, tensor::Shape x, tensor::Shape y) {
  return 2 * ((grid.filters - 1) * x.size() + (grid.channels - 1) * y.size());
}

/// Calls check(bytes of this rank) on every rank for a step of `layer` on `grid` in so many
/// replicas.
template <class Check>
void run_step(Backend backend, const ConvolutionLayer& layer, tensor::Shape x, ChannelGrid grid,
              int replicas, Check check, Tiles tiles = {}) {
  const test::Chain chain{.x = x, .layers = {layer}};
  const std::vector<test::WholeLayer> whole = [&] {
    std::vector<test::WholeLayer> made;
    made.push_back(test::make_whole_layer(layer, x, Numbers::whole));
    return made;
  }();
  const ProcessGrid process{.pr = tiles.count() * grid.ranks(), .pc = replicas};
  World(backend, process.ranks()).run([&](transport::World& world) {
    tensor::Engine engine;
    GridCommunicators communicators(world.communicator(), process);
    test::ChainPart part({engine, communicators, &world.arena()}, chain, {grid}, tiles);
    const std::int64_t before = bytes_of(world);
    part.run(whole);
    check(bytes_of(world) - before);
  });
}

const std::vector<ChannelGrid>& grids() {
  static const std::vector<ChannelGrid> all{{4, 1}, {1, 4}, {2, 2}, {2, 3}, {1, 1}};
  return all;
}

// x is 4 x 6 x 6 x 24 and y is 4 x 3 x 3 x 48 on every grid; in two replicas each has half of them.
TEST(ChannelTrafficTest, EveryRankSendsWhatTheFormulasSayWhereSplitsAreEven) {
  const tensor::Shape x{4, 6, 6, 24};
  const tensor::Shape y{4, 3, 3, 48};
  const ConvolutionLayer layer{.filters = y.c, .kernel = 3, .stride = 2, .bias = true};
  for (const Backend backend : {Backend::shm, Backend::shm_nodes}) {
    for (const ChannelGrid grid : grids()) {
      for (const int replicas : {1, 2}) {
        SCOPED_TRACE(rondo::test::name_of(backend) + (" " + test::text_of(grid, replicas)));
        const std::int64_t ranks = grid.ranks() * replicas;
        run_step(backend, layer, x, grid, replicas, [&](std::int64_t bytes) {
          EXPECT_EQ(bytes, 4 * elements_of_all(grid, x, y) / ranks);
        });
      }
    }
  }
}

TEST(ChannelTrafficTest, AllRanksTogetherSendWhatTheFormulasSayWhereSplitsAreUneven) {
  const tensor::Shape x{3, 5, 4, 17};
  const tensor::Shape y{3, 5, 4, 13};
  const ConvolutionLayer layer{.filters = y.c, .kernel = 3};
  for (const ChannelGrid grid : grids()) {
    for (const int replicas : {1, 2}) {
      SCOPED_TRACE(test::text_of(grid, replicas));
      std::atomic<std::int64_t> sum = 0;
      run_step(Backend::shm, layer, x, grid, replicas, [&](std::int64_t bytes) { sum += bytes; });
      EXPECT_EQ(sum.load(), 4 * elements_of_all(grid, x, y));
    }
  }
}

// A row or column of x and of dy goes over each cut, to each rank that has gathered the channels.
// Even rows and columns of a 3x3 kernel: of x and y 6 x 6, 3 rows and columns of each tile.
TEST(ChannelTrafficTest, TilesSendHalosOfWhatTheyHaveGatheredBesides) {
  const tensor::Shape x{2, 6, 6, 8};
  const ConvolutionLayer layer{.filters = 16};
  const tensor::Shape y{2, 6, 6, 16};
  for (const ChannelGrid grid : {x_of(2), y_of(2), ChannelGrid{2, 2}}) {
    SCOPED_TRACE(test::text_of(grid, 1));
    const std::int64_t row = 2 * 2 * 6;  // of 2 images, both ways, of one channel
    const std::int64_t halos = row * (grid.filters * x.c + grid.channels * y.c);
    for (const Tiles tiles : {rows, columns}) {
      std::atomic<std::int64_t> sum = 0;
      run_step(
          Backend::shm_nodes, layer, x, grid, 1, [&](std::int64_t bytes) { sum += bytes; }, tiles);
      EXPECT_EQ(sum.load(), 4 * (elements_of_all(grid, x, y) + halos));
    }
  }
}

TEST(ChannelTrafficTest, TheLayerKnowsWhatTilesSend) {
  const tensor::Shape x{3, 7, 5, 9};
  const ConvolutionLayer layer{.filters = 11, .stride = 2};
  const tensor::Shape y{3, 4, 3, 11};
  for (const ChannelGrid grid : {x_of(2), y_of(2), ChannelGrid{2, 2}}) {
    for (const Tiles tiles : {rows, columns, Tiles{.h = 3}}) {
      const int ranks = tiles.count() * grid.ranks();
      const Partition from =
          on_grid(x, {.pr = ranks}, {.h = tiles.h, .w = tiles.w, .c = grid.ranks()});
      const NodeLayout place{test::split_of(grid, tiles), from, output_of(from, grid, y)};
      std::atomic<std::int64_t> sum = 0;
      run_step(
          Backend::shm_nodes, layer, x, grid, 1, [&](std::int64_t bytes) { sum += bytes; }, tiles);
      EXPECT_EQ(static_cast<std::uint64_t>(sum.load()),
                LayerKind(layer)->traffic(place, true).bytes(tensor::DataType::f32));
    }
  }
}

// y is allgathered, dx allreduced: large enough that the latter goes round rings between nodes.
TEST(ChannelTrafficTest, AConnectedLayerSendsWhatTheFormulasSay) {
  const FullyConnectedLayer layer{.outputs = 48};
  const tensor::Shape x{16, 1, 1, 3072};
  for (const Backend backend : {Backend::shm, Backend::shm_nodes}) {
    for (const int pr : {2, 3, 4}) {
      SCOPED_TRACE(std::string(rondo::test::name_of(backend)) + " " + std::to_string(pr));
      World(backend, pr).run([&](transport::World& world) {
        tensor::Engine engine;
        GridCommunicators communicators(world.communicator(), {.pr = pr});
        const NodeLayout place{.split = {.kind = SplitKind::channel, .channels = {.filters = pr}},
                               .x = by_replica(x, {.pr = pr}),
                               .y = by_replica({16, 1, 1, 48}, {.pr = pr})};
        const FullyConnectedLayer part{.outputs = layer.outputs / pr};
        test::WholeLayer own = test::make_whole_layer(part, x, Numbers::whole);
        own.dx = tensor::Tensor(x, &world.arena());
        own.y = tensor::Tensor(place.y.extents(), &world.arena());
        own.dy = tensor::Tensor(place.y.extents(), &world.arena());
        const auto kernel =
            make_connected_by_output({engine, communicators, &world.arena()}, layer, place, true);
        const std::int64_t before = bytes_of(world);

        test::run(*kernel, own);

        const std::int64_t elements = (pr - 1) * place.y.extents().size() + 2 * (pr - 1) * x.size();
        EXPECT_EQ(bytes_of(world) - before, 4 * elements / pr);
      });
    }
  }
}

}  // namespace
}  // namespace rondo::train::convolution_by_channel_test

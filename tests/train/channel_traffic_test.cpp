// Words that layers split over channels, filters and outputs send, against the closed forms.

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "train/support/channel_chain.hpp"

namespace rondo::train::channel_traffic_test {
namespace {

using rondo::test::Backend;
using rondo::test::World;
using test::Numbers;

/// Bytes that crossed between ranks on this rank's account: loads and stores inside a node,
/// messages between nodes.
std::int64_t bytes_of(const transport::World& world) {
  const transport::Counters counters = world.counters();
  return static_cast<std::int64_t>(counters.moved_bytes() + counters.sent_bytes);
}

/// Words that a rank sends for forward and backward of a convolution, times the ranks; `groups`
/// groups have the samples of `x` and `y` together.
std::int64_t words_of_all(ChannelGrid grid, tensor::Shape x, tensor::Shape y) {
  return 2 * ((grid.filters - 1) * x.size() + (grid.channels - 1) * y.size());
}

/// Calls check(bytes of this rank) on every rank for a step of `layer` on `grid` in two groups.
template <class Check>
void run_step(Backend backend, const ConvolutionLayer& layer, tensor::Shape x, ChannelGrid grid,
              int groups, Check check) {
  const test::Chain chain{.x = x, .layers = {layer}};
  const std::vector<test::WholeLayer> whole = [&] {
    std::vector<test::WholeLayer> made;
    made.push_back(test::make_whole_layer(layer, x, Numbers::whole));
    return made;
  }();
  World(backend, grid.ranks() * groups).run([&](transport::World& world) {
    tensor::Engine engine;
    GridCommunicators communicators(world.communicator(), {.pr = grid.ranks(), .pc = groups});
    test::ChainPart part({engine, communicators, &world.arena()}, chain, {grid});
    const std::int64_t before = bytes_of(world);
    part.run(whole);
    check(bytes_of(world) - before);
  });
}

const std::vector<ChannelGrid>& grids() {
  static const std::vector<ChannelGrid> all{{4, 1}, {1, 4}, {2, 2}, {2, 3}, {1, 1}};
  return all;
}

// x is 4 x 6 x 6 x 24 and y is 4 x 3 x 3 x 48 on every grid; in two groups each has half of them.
TEST(ChannelTrafficTest, EveryRankSendsWhatTheFormulasSayWhereSplitsAreEven) {
  const tensor::Shape x{4, 6, 6, 24};
  const tensor::Shape y{4, 3, 3, 48};
  const ConvolutionLayer layer{.filters = y.c, .kernel = 3, .stride = 2, .bias = true};
  for (const Backend backend : {Backend::shm, Backend::shm_nodes}) {
    for (const ChannelGrid grid : grids()) {
      for (const int groups : {1, 2}) {
        SCOPED_TRACE(rondo::test::name_of(backend) + (" " + test::text_of(grid, groups)));
        const std::int64_t ranks = grid.ranks() * groups;
        run_step(backend, layer, x, grid, groups, [&](std::int64_t bytes) {
          EXPECT_EQ(bytes, 4 * words_of_all(grid, x, y) / ranks);
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
    for (const int groups : {1, 2}) {
      SCOPED_TRACE(test::text_of(grid, groups));
      std::atomic<std::int64_t> sum = 0;
      run_step(Backend::shm, layer, x, grid, groups, [&](std::int64_t bytes) { sum += bytes; });
      EXPECT_EQ(sum.load(), 4 * words_of_all(grid, x, y));
    }
  }
}

// y is allgathered, dx allreduced: large enough that the latter goes round rings between nodes.
TEST(ChannelTrafficTest, AConnectedLayerSendsWhatTheFormulasSay) {
  const FullyConnectedLayer layer{.outputs = 48};
  const tensor::Shape x{4, 1, 1, 3072};
  for (const Backend backend : {Backend::shm, Backend::shm_nodes}) {
    for (const int pr : {2, 3, 4}) {
      SCOPED_TRACE(std::string(rondo::test::name_of(backend)) + " " + std::to_string(pr));
      World(backend, pr).run([&](transport::World& world) {
        tensor::Engine engine;
        GridCommunicators communicators(world.communicator(), {.pr = pr});
        const NodeLayout place{.split = {.kind = SplitKind::channel, .channels = {.filters = pr}},
                               .x = by_group(x, {.pr = pr}),
                               .y = by_group({4, 1, 1, 48}, {.pr = pr})};
        const FullyConnectedLayer part{.outputs = layer.outputs / pr};
        test::WholeLayer own = test::make_whole_layer(part, x, Numbers::whole);
        own.dx = tensor::Tensor(x, &world.arena());
        own.y = tensor::Tensor(place.y.extents(), &world.arena());
        own.dy = tensor::Tensor(place.y.extents(), &world.arena());
        const auto kernel =
            make_connected_by_output({engine, communicators, &world.arena()}, layer, place, true);
        const std::int64_t before = bytes_of(world);

        test::run(*kernel, own);

        const std::int64_t words = (pr - 1) * place.y.extents().size() + 2 * (pr - 1) * x.size();
        EXPECT_EQ(bytes_of(world) - before, 4 * words / pr);
      });
    }
  }
}

}  // namespace
}  // namespace rondo::train::channel_traffic_test

// Batch norm under every layout and every sharing of statistics, against one rank that has all the
// samples and pixels that share.

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

#include <gtest/gtest.h>

#include "layers/layer_type.hpp"
#include "layers/split_kernels.hpp"
#include "support/world.hpp"
#include "train/layouts.hpp"
#include "train/support/arrays.hpp"

namespace rondo::train::batch_norm_on_grid_test {
namespace {

using rondo::test::World;
using test::Numbers;
using test::part_of;
using test::put_part;

constexpr BatchNormLayer layer{.activation = tensor::Activation::relu, .residual = true};

/// The arrays that a rank has of the layer, or those of a whole layer.
struct Arrays {
  Arrays(const tensor::Shape& extents, const Box& box, const Range& channels)
      : x(part_of(test::filled(extents, Numbers::real, 1), box)),
        residual(part_of(test::filled(extents, Numbers::real, 2), box)),
        dy(part_of(test::filled(extents, Numbers::real, 3), box)),
        y(box.shape()),
        dx(box.shape()),
        gradients(2 * static_cast<std::size_t>(channels.size()), -1.0F),
        statistics(gradients.size(), 1.0F) {
    for (const unsigned seed : {4U, 5U}) {  // scale, then shift
      for (auto c = channels.first; c < channels.last; ++c) {
        parameters.push_back(test::number(Numbers::real, seed, static_cast<std::size_t>(c)));
      }
    }
  }

  void run(LayerKernel& kernel) {
    kernel.forward_training(
        {.x = x.view(), .residual = residual.view(), .y = y.view(), .parameters = parameters},
        statistics);
    kernel.backward_parameters(test::operands_of(*this));
  }

  tensor::Tensor x, residual, dy, y, dx;
  std::vector<float> parameters = {}, gradients, statistics;
};

Range hull(Range a, Range b) {
  if (a.empty()) return b;
  if (b.empty()) return a;
  return {std::min(a.first, b.first), std::max(a.last, b.last)};
}

/// All that shares statistics with `rank`'s box: the ranks' boxes make up a box.
Box shared_box(const Partition& x, ProcessGrid grid, BatchNormScope statistics, int rank) {
  Box box = x.box_of(rank);
  for (int other = 0; other < x.ranks() && statistics != BatchNormScope::rank; ++other) {
    const Box its = x.box_of(other);
    const bool here =
        statistics == BatchNormScope::all || grid.replica_of(other) == grid.replica_of(rank);
    if (!here || its.c != box.c || its.empty()) continue;
    box.n = hull(box.n, its.n);
    box.h = hull(box.h, its.h);
    box.w = hull(box.w, its.w);
  }
  return box;
}

/// Values that ranks gave, or should have given, in the places where they lie.
struct Gathered {
  explicit Gathered(const tensor::Shape& extents) : y(extents), dx(extents), dy(extents) {
    for (tensor::Tensor* tensor : {&y, &dx, &dy}) {
      std::ranges::fill(tensor->span(), std::numeric_limits<float>::quiet_NaN());
    }
  }

  void put(const Arrays& arrays, const Box& box) {
    put_part(arrays.y.span(), box, y);
    put_part(arrays.dx.span(), box, dx);
    put_part(arrays.dy.span(), box, dy);
  }
  void put(const Gathered& other, const Box& box) {
    put_part(part_of(other.y, box).span(), box, y);
    put_part(part_of(other.dx, box).span(), box, dx);
    put_part(part_of(other.dy, box).span(), box, dy);
  }

  tensor::Tensor y, dx, dy;
};

/// The content that every rank's box should hold.
Gathered expected_of(const Partition& x, ProcessGrid grid, BatchNormScope statistics) {
  tensor::Engine engine;
  Gathered expected(x.extents());
  for (int rank = 0; rank < x.ranks(); ++rank) {
    const Box box = shared_box(x, grid, statistics, rank);
    if (x.box_of(rank).empty()) continue;
    Arrays arrays(x.extents(), box, box.c);
    arrays.run(*make_layer_kernel(engine, layer, box.shape(), true));
    Gathered shared(x.extents());
    shared.put(arrays, box);
    expected.put(shared, x.box_of(rank));
  }
  return expected;
}

void expect_equal(const Gathered& given, const Gathered& expected) {
  EXPECT_TRUE(test::agree(given.y.span(), expected.y.span(), Numbers::real)) << "y";
  EXPECT_TRUE(test::agree(given.dx.span(), expected.dx.span(), Numbers::real)) << "dx";
  EXPECT_TRUE(test::agree(given.dy.span(), expected.dy.span(), Numbers::real)) << "residual";
}

/// Runs the layer under every layout of an array over `ranks` ranks.
void expect_equal_everywhere(int ranks, ProcessGrid grid, BatchNormScope statistics) {
  const tensor::Shape extents{.n = 5, .h = 5, .w = 4, .c = 7};
  const auto layouts = test::layouts_of(extents, ranks);
  std::vector<std::unique_ptr<Gathered>> given;
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    given.push_back(std::make_unique<Gathered>(extents));
  }
  std::mutex mutex;
  World(ranks).run([&](transport::World& world) {
    tensor::Engine engine;
    GridCommunicators communicators(world.communicator(), grid);
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      const NodeLayout place{.x = layouts[i].partition, .y = layouts[i].partition};
      const Box box = place.x.box_of(world.rank());
      Arrays arrays(extents, box, box.c);
      arrays.run(*make_batch_norm_on_grid({engine, communicators, &world.arena()}, layer, place,
                                          statistics));
      const std::scoped_lock lock(mutex);
      given[i]->put(arrays, box);
    }
  });
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    SCOPED_TRACE(layouts[i].name);
    expect_equal(*given[i], expected_of(layouts[i].partition, grid, statistics));
  }
}

TEST(BatchNormOnGridTest, ARankAloneHasItsOwnStatistics) {
  expect_equal_everywhere(4, {.pr = 2, .pc = 2}, BatchNormScope::rank);
}

TEST(BatchNormOnGridTest, AllRanksHaveTheStatisticsOfTheWholeBatch) {
  for (const int ranks : {2, 4, 6}) {
    expect_equal_everywhere(ranks, {.pr = ranks}, BatchNormScope::all);
  }
}

// A replica knows only itself, and the ranks in its own positions in other replicas.
TEST(BatchNormOnGridTest, AReplicaHasTheStatisticsOfItsSamplesOrOfThoseOfOtherReplicasToo) {
  const tensor::Shape extents{.n = 5, .h = 5, .w = 4, .c = 7};
  const ProcessGrid grid{.pr = 4, .pc = 2};
  for (const BatchNormScope scope : {BatchNormScope::replica, BatchNormScope::all}) {
    const Gathered expected = expected_of(by_replica(extents, grid), grid, scope);
    World(grid.ranks()).run([&](transport::World& world) {
      tensor::Engine engine;
      transport::Communicator replica = world.communicator().split(grid.replica_of(world.rank()));
      transport::Communicator across = world.communicator().split(grid.position_of(world.rank()));
      GridCommunicators communicators(replica, {.pr = grid.pr});
      const KernelContext context{engine, communicators, &world.arena(), &across};
      const Range samples = even_range(extents.n, grid.pc, grid.replica_of(world.rank()));
      const tensor::Shape own = extents.with_n(samples.size());
      for (const auto& [name, x] : test::layouts_of(own, grid.pr)) {
        Box box = x.box_of(replica.rank());
        box.n = {box.n.first + samples.first, box.n.last + samples.first};
        Arrays arrays(extents, box, box.c);
        arrays.run(*make_batch_norm_on_grid(context, layer, {.x = x, .y = x}, scope));

        EXPECT_TRUE(test::agree(arrays.y.span(), part_of(expected.y, box).span(), Numbers::real))
            << name;
        EXPECT_TRUE(test::agree(arrays.dx.span(), part_of(expected.dx, box).span(), Numbers::real))
            << name;
      }
    });
  }
}

}  // namespace
}  // namespace rondo::train::batch_norm_on_grid_test

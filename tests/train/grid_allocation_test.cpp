// A step of a layer that is split over channels, filters or outputs, or that shares statistics,
// allocates nothing. Convolutions and fully connected layers are counted on a rank that has nothing
// to compute, for oneDNN allocates inside its own calls.

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "layers/split_kernels.hpp"
#include "support/allocations.hpp"
#include "support/world.hpp"
#include "train/support/whole_layer.hpp"

namespace rondo::train::grid_allocation_test {
namespace {

using rondo::test::allocations_of_this_thread;
using rondo::test::World;
using tensor::Activation;

/// Runs a few steps of the kernel that make(context) gives, on one rank for each entry of
/// `parameters`, which is how many the rank has. Gives what ranks allocated in their last step.
template <class Make>
std::vector<std::size_t> allocations_of(const NodeLayout& place,
                                        const std::vector<std::size_t>& parameters, Make make) {
  const int ranks = static_cast<int>(parameters.size());
  std::vector<std::size_t> allocations(parameters.size());
  World(ranks).run([&](transport::World& world) {
    tensor::Engine engine;
    GridCommunicators communicators(world.communicator(), {.pr = ranks});
    const auto kernel = make(KernelContext{engine, communicators, &world.arena()});
    const auto rank = static_cast<std::size_t>(world.rank());
    const tensor::Shape x = place.x.box_of(world.rank()).shape();
    const tensor::Shape y = place.y.box_of(world.rank()).shape();
    test::WholeLayer layer{.x = tensor::Tensor(x, &world.arena()),
                           .dy = tensor::Tensor(y, &world.arena()),
                           .parameters = std::vector<float>(parameters[rank]),
                           .y = tensor::Tensor(y, &world.arena()),
                           .dx = tensor::Tensor(x, &world.arena()),
                           .gradients = std::vector<float>(parameters[rank])};
    std::vector<float> statistics(parameters[rank]);
    for (int step = 0; step < 4; ++step) {
      const std::size_t before = allocations_of_this_thread();
      kernel->load(layer.parameters);
      kernel->forward_training(
          {.x = layer.x.view(), .y = layer.y.view(), .parameters = layer.parameters}, statistics);
      const BackwardOperands operands = test::operands_of(layer);
      kernel->backward_parameters(operands);
      kernel->backward_input(operands);
      allocations[rank] = allocations_of_this_thread() - before;
    }
  });
  return allocations;
}

// Part 0 of 3 channels, or of 3 filters, in 4 is empty.
TEST(GridAllocationTest, ConvolutionsAllocateNothing) {
  const tensor::Shape extents{2, 4, 4, 3};
  const ConvolutionLayer layer{.filters = 3, .activation = Activation::relu};
  for (const ChannelGrid grid : {ChannelGrid{4, 1}, ChannelGrid{1, 4}}) {
    const Partition x = by_channel(extents, {.pr = 4});
    const NodeLayout place{
        {.kind = SplitKind::channel, .channels = grid}, x, output_of(x, grid, extents)};

    const auto allocations =
        allocations_of(place, {0, 27, 27, 27}, [&](const KernelContext& context) {
          return make_convolution_by_channel(context, layer, place, true);
        });

    EXPECT_EQ(allocations[0], 0U);
  }
}

TEST(GridAllocationTest, ConnectedLayersAllocateNothing) {
  const NodeLayout place{{.kind = SplitKind::channel},
                         by_replica({2, 1, 1, 8}, {.pr = 4}),
                         by_replica({2, 1, 1, 3}, {.pr = 4})};
  const auto allocations = allocations_of(place, {0, 9, 9, 9}, [&](const KernelContext& context) {
    return make_connected_by_output(context, {.outputs = 3}, place, true);
  });
  EXPECT_EQ(allocations[0], 0U);
}

TEST(GridAllocationTest, SharedStatisticsAllocateNothing) {
  constexpr std::int64_t channels = 600;  // more than travels in one small message
  const Partition x = by_sample({3, 2, 2, channels}, 2);
  const NodeLayout place{.x = x, .y = x};

  const auto allocations =
      allocations_of(place, {2 * channels, 2 * channels}, [&](const KernelContext& context) {
        return make_batch_norm_on_grid(context, {}, place, BatchNormScope::all);
      });

  EXPECT_EQ(allocations[0], 0U);
  EXPECT_EQ(allocations[1], 0U);
}

}  // namespace
}  // namespace rondo::train::grid_allocation_test

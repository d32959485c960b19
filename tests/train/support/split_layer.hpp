#pragma once

// A layer as one rank of a grid runs it, compared with the layer that is not split.

#include <span>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/tensor.hpp>
#include <rondo/transport/world.hpp>

#include "layers/split_kernels.hpp"
#include "train/support/by_space.hpp"
#include "train/support/whole_layer.hpp"

namespace rondo::train::test {

/// The objects that a rank's kernels share.
struct GridRank {
  GridRank(transport::World& world, ProcessGrid grid)
      : communicators(world.communicator(), grid), context{engine, communicators, &world.arena()} {}

  tensor::Engine engine = tensor::Engine();
  GridCommunicators communicators;
  KernelContext context;
};

/// Where `layer` lies on a grid if it is split over samples, replicas or space.
inline NodeLayout place_on(ProcessGrid grid, const LayerSplit& split, const WholeLayer& layer) {
  const auto lay = [&](const tensor::Shape& extents) {
    if (split.kind == SplitKind::sample) return by_sample(extents, grid.ranks());
    if (split.kind == SplitKind::replica) return by_replica(extents, grid);
    return by_space(extents, grid, split.h, split.w);
  };
  return {split, lay(layer.x.shape()), lay(layer.y.shape())};
}

/// The results that a rank has written, and where they lie in the whole.
struct SplitLayer {
  Box x_box = {};
  Box y_box = {};
  tensor::Tensor y = {};
  tensor::Tensor dx = {};
  std::vector<float> gradients = {};
};

/// Runs `kernel` forward and backward on this rank's parts of what `whole` was given. All that it
/// is to write is full of rubbish first.
inline SplitLayer run_split(const KernelContext& context, LayerKernel& kernel,
                            const NodeLayout& place, const WholeLayer& whole) {
  const int rank = context.communicators.rank();
  constexpr float rubbish = 1e6F;
  SplitLayer part{.x_box = place.x.box_of(rank), .y_box = place.y.box_of(rank)};
  WholeLayer mine{.x = part_of(whole.x, part.x_box),
                  .dy = part_of(whole.dy, part.y_box),
                  .parameters = whole.parameters,
                  .y = tensor::Tensor(part.y_box.shape()),
                  .dx = tensor::Tensor(part.x_box.shape()),
                  .gradients = std::vector<float>(whole.gradients.size(), rubbish)};
  std::ranges::fill(mine.y.span(), rubbish);
  std::ranges::fill(mine.dx.span(), rubbish);
  run(kernel, mine);
  part.y = std::move(mine.y);
  part.dx = std::move(mine.dx);
  part.gradients = std::move(mine.gradients);
  return part;
}

/// Adds the gradients of parameters over all ranks, or over the replicas where all ranks of a
/// replica have done the same.
inline void sum_gradients(const KernelContext& context, const NodeLayout& place,
                          std::vector<float>& gradients) {
  GridCommunicators& communicators = context.communicators;
  const bool alike = place.split.kind == SplitKind::replica;
  (alike ? communicators.across() : communicators.all()).allreduce(std::span(gradients)).wait();
}

inline void expect_parts_of(const WholeLayer& whole, const SplitLayer& part, Numbers numbers) {
  EXPECT_TRUE(agree(part.y.span(), part_of(whole.y, part.y_box).span(), numbers)) << "y";
  EXPECT_TRUE(agree(part.dx.span(), part_of(whole.dx, part.x_box).span(), numbers)) << "dx";
  EXPECT_TRUE(agree(part.gradients, whole.gradients, numbers)) << "gradients of parameters";
}

}  // namespace rondo::train::test

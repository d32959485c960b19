#include "layers/batch_norm_on_grid.hpp"

#include <utility>
#include <vector>

#include "grid/replica.hpp"
#include "model/specs.hpp"

namespace rondo::train {
namespace {

/// The ranks that share statistics: of one channel block, of one replica, and of one group or all.
transport::Communicator& sharing(GridCommunicators& communicators, const Partition& x,
                                 BatchNormGroup statistics) {
  const bool by_group = statistics == BatchNormGroup::group;
  std::vector<int> colors;
  std::vector<int> keys;
  for (int rank = 0; rank < x.ranks(); ++rank) {
    const int block = x.block_of(rank);
    const int group = by_group ? communicators.grid().group_of(rank) : 0;
    const int channels = group * x.parts().c + block % x.parts().c;
    colors.push_back(channels * x.replicas() + replica_of(x, rank));
    keys.push_back(block);
  }
  return communicators.split(colors, keys);
}

tensor::SumOverRanks sum_over(const GridContext& context, const Partition& x,
                              BatchNormGroup statistics) {
  if (statistics == BatchNormGroup::rank) return {};
  const auto of_several = [](transport::Communicator* ranks) {
    return ranks != nullptr && ranks->size() > 1 ? ranks : nullptr;
  };
  transport::Communicator* const here = of_several(&sharing(context.communicators, x, statistics));
  transport::Communicator* const elsewhere =
      statistics == BatchNormGroup::all ? of_several(context.across) : nullptr;
  if (here == nullptr && elsewhere == nullptr) return {};
  return [here, elsewhere](std::span<double> sums) {
    if (here != nullptr) here->allreduce(sums).wait();
    if (elsewhere != nullptr) elsewhere->allreduce(sums).wait();
  };
}

// The kernel wants pictures of at least one pixel: without any, there are no images.
tensor::Shape box_of(const Partition& x, int rank) {
  const tensor::Shape box = x.box_of(rank).shape();
  return box.size() > 0 ? box : tensor::Shape{0, 1, 1, box.c};
}

}  // namespace

BatchNormOnGrid::BatchNormOnGrid(const GridContext& context, const BatchNormLayer& layer,
                                 const GridLayer& place, BatchNormGroup statistics)
    : box_(box_of(place.x, context.communicators.rank())), residual_(layer.residual) {
  // Made by all ranks, for it may split a communicator.
  tensor::SumOverRanks sum = sum_over(context, place.x, statistics);
  if (box_.c > 0) kernel_.emplace(context.engine, spec_of(layer, box_), std::move(sum));
}

void BatchNormOnGrid::forward_training(const ForwardOperands& operands,
                                       std::span<float> statistics) {
  if (!kernel_) return;
  kernel_->forward_training(box_.n > 0 ? operands : without_images(operands), statistics);
}

void BatchNormOnGrid::forward_inference(const ForwardOperands& operands,
                                        std::span<const float> statistics) {
  if (!kernel_) return;
  kernel_->forward_inference(box_.n > 0 ? operands : without_images(operands), statistics);
}

void BatchNormOnGrid::backward_parameters(const BackwardOperands& operands) {
  if (!kernel_) return;
  kernel_->backward_parameters(box_.n > 0 ? operands : without_images(operands));
}

ForwardOperands BatchNormOnGrid::without_images(const ForwardOperands& operands) const {
  return {.x = {nullptr, box_},
          .residual =
              residual_ ? tensor::View<const float>(nullptr, box_) : tensor::View<const float>(),
          .y = {nullptr, box_},
          .parameters = operands.parameters};
}

BackwardOperands BatchNormOnGrid::without_images(const BackwardOperands& operands) const {
  return {.x = {nullptr, box_},
          .y = {nullptr, box_},
          .dy = {nullptr, box_},
          .dx = {nullptr, box_},
          .parameters = operands.parameters,
          .gradients = operands.gradients};
}

std::unique_ptr<LayerKernel> make_batch_norm_on_grid(const GridContext& context,
                                                     const BatchNormLayer& layer,
                                                     const GridLayer& place,
                                                     BatchNormGroup statistics) {
  return std::make_unique<BatchNormOnGrid>(context, layer, place, statistics);
}

}  // namespace rondo::train

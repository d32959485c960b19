// Batch norm, with an optional residual that is added before the activation.
//
// Its backward pass is one pass for both halves, works in place and adds up two gradients of its
// output while it reads them; the backward plan relies on that (LayerTraits::batch_statistics).
//
// On a grid its statistics are those of this rank's box, or shared with the ranks that hold the
// same channels of other samples and pixels: those of its replica, or all. Ranks that hold the same
// block share with different ranks, so that no sample counts twice.

#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <rondo/tensor/batch_norm.hpp>

#include "layers/kernel_memories.hpp"
#include "layers/split_kernels.hpp"

namespace rondo::train {
namespace {

tensor::BatchNormSpec spec_of(const BatchNormLayer& layer, const tensor::Shape& input,
                              tensor::DataType type = tensor::DataType::f32) {
  return {.input = input,
          .activation = layer.activation,
          .residual = layer.residual,
          .momentum = layer.momentum,
          .type = type};
}

/// Batch norm: its parameter block is scale, then shift; its statistics are running mean, then
/// variance.
class BatchNormKernel final : public LayerKernel {
 public:
  BatchNormKernel(tensor::Engine& engine, const tensor::BatchNormSpec& spec,
                  tensor::SumOverRanks sum_over_ranks = {})
      : kernel_(engine, spec, std::move(sum_over_ranks)),
        channels_(static_cast<std::size_t>(spec.input.c)) {}

  void forward_training(const ForwardOperands& operands, std::span<float> statistics) override {
    kernel_.forward_training(operands.x, operands.residual, split(operands.parameters),
                             statistics.first(channels_), statistics.subspan(channels_),
                             operands.y);
  }

  void forward_inference(const ForwardOperands& operands,
                         std::span<const float> statistics) override {
    kernel_.forward_inference(operands.x, operands.residual, split(operands.parameters),
                              statistics.first(channels_), statistics.subspan(channels_),
                              operands.y);
  }

  /// Also writes dx, and leaves the gradient of the residual input in dy.
  void backward_parameters(const BackwardOperands& operands) override {
    // Both halves at once: the sums that give the gradients of scale and shift are also what dx
    // needs.
    kernel_.backward(operands.x, operands.y, split(operands.parameters), operands.dy, operands.dx,
                     operands.gradients.first(channels_), operands.gradients.subspan(channels_),
                     operands.dy_also);
  }

 private:
  [[nodiscard]] tensor::BatchNormParameters split(std::span<const float> parameters) const {
    return {.scale = parameters.first(channels_), .shift = parameters.subspan(channels_)};
  }

  tensor::BatchNorm kernel_;
  std::size_t channels_;
};

/// The ranks that share statistics: of one channel block, of one replica, and of one replica or
/// all.
transport::Communicator& sharing(GridCommunicators& communicators, const Partition& x,
                                 BatchNormScope statistics) {
  const bool by_replica = statistics == BatchNormScope::replica;
  std::vector<int> colors;
  std::vector<int> keys;
  for (int rank = 0; rank < x.ranks(); ++rank) {
    const int block = x.block_of(rank);
    const int replica = by_replica ? communicators.grid().replica_of(rank) : 0;
    // The channel block of a block is its number modulo the parts along C, because c is the
    // fastest.
    const int channels = replica * x.parts().c + block % x.parts().c;
    colors.push_back(channels * x.holders() + x.holder_index(rank));
    keys.push_back(block);
  }

  return communicators.split(colors, keys);
}

tensor::SumOverRanks sum_over(const KernelContext& context, const Partition& x,
                              BatchNormScope statistics) {
  if (statistics == BatchNormScope::rank) return {};
  // A communicator of one rank would only cost a call.
  const auto of_several = [](transport::Communicator* ranks) {
    return ranks != nullptr && ranks->size() > 1 ? ranks : nullptr;
  };
  transport::Communicator* const here = of_several(&sharing(context.communicators, x, statistics));
  transport::Communicator* const elsewhere =
      statistics == BatchNormScope::all ? of_several(context.across) : nullptr;
  if (here == nullptr && elsewhere == nullptr) return {};
  return [here, elsewhere](std::span<double> sums) {
    // Within the replica first, then over the replicas: after both every rank has the sum of all.
    if (here != nullptr) here->allreduce(sums).wait();
    if (elsewhere != nullptr) elsewhere->allreduce(sums).wait();
  };
}

// The kernel wants images of at least one pixel: without any, there are no images.
tensor::Shape box_of(const Partition& x, int rank) {
  const tensor::Shape box = x.box_of(rank).shape();
  return box.size() > 0 ? box : tensor::Shape{0, 1, 1, box.c};
}

/// Batch norm of this rank's box, its statistics shared with the ranks that hold the same channels
/// of other samples and pixels: those of its replica, or all. Ranks that hold the same block share
/// with different ranks, so that no sample counts twice. Where KernelContext::across is given, it
/// reaches the other replicas: `all` sums over this one's ranks, then over them.
///
/// A rank without pixels takes part with zeros. One without channels has nothing to share.
class BatchNormOnGrid final : public LayerKernel {
 public:
  BatchNormOnGrid(const KernelContext& context, const BatchNormLayer& layer,
                  const NodeLayout& layout, BatchNormScope statistics)
      : box_(box_of(layout.x, context.communicators.rank())),
        type_(context.type),
        residual_(layer.residual) {
    // Made by all ranks, for it may split a communicator.
    tensor::SumOverRanks sum = sum_over(context, layout.x, statistics);
    if (box_.c > 0) kernel_.emplace(context.engine, spec_of(layer, box_, type_), std::move(sum));
  }

  void forward_training(const ForwardOperands& operands, std::span<float> statistics) override {
    if (!kernel_) return;
    kernel_->forward_training(box_.n > 0 ? operands : without_images(operands), statistics);
  }

  void forward_inference(const ForwardOperands& operands,
                         std::span<const float> statistics) override {
    if (!kernel_) return;
    kernel_->forward_inference(box_.n > 0 ? operands : without_images(operands), statistics);
  }

  void backward_parameters(const BackwardOperands& operands) override {
    if (!kernel_) return;
    kernel_->backward_parameters(box_.n > 0 ? operands : without_images(operands));
  }

 private:
  [[nodiscard]] ForwardOperands without_images(const ForwardOperands& operands) const {
    return {.x = nothing(),
            .residual = residual_ ? nothing() : tensor::AnyView(),
            .y = nothing(),
            .parameters = operands.parameters};
  }

  [[nodiscard]] BackwardOperands without_images(const BackwardOperands& operands) const {
    return {.x = nothing(),
            .y = nothing(),
            .dy = nothing(),
            .dx = nothing(),
            .parameters = operands.parameters,
            .gradients = operands.gradients};
  }

  [[nodiscard]] tensor::AnyView nothing() const { return {nullptr, box_, type_}; }

  tensor::Shape box_;  ///< without elements: no images of one pixel
  tensor::DataType type_;
  bool residual_;
  std::optional<BatchNormKernel> kernel_;  ///< none where there are no channels
};

// The layer, as the rest of the library sees it.
class BatchNorm final : public LayerType {
 public:
  explicit BatchNorm(const BatchNormLayer& layer) : layer_(layer) {}

  std::string text() const override {
    // The usual momentum is not named, so that what was recorded of such models stays valid.
    const bool usual = layer_.momentum == BatchNormLayer{}.momentum;
    return fmt::format("norm act{} residual{}{}", static_cast<int>(layer_.activation),
                       layer_.residual ? 1 : 0,
                       usual ? "" : fmt::format(" momentum{}", layer_.momentum));
  }

  LayerTraits traits() const noexcept override {
    return {.batch_statistics = true, .momentum = layer_.momentum, .activation = layer_.activation};
  }

  std::size_t inputs() const noexcept override { return layer_.residual ? 2 : 1; }
  tensor::Shape output(const tensor::Shape& input) const override { return input; }

  LayerParameters parameters(const tensor::Shape& input) const override {
    const std::vector<std::int64_t> channels = {input.c};
    return {.learned = {{.name = "weight", .shape = channels, .initial = Initial::ones},
                        {.name = "bias", .shape = channels, .initial = Initial::zeros}},
            .statistics = {{.name = "running_mean", .shape = channels, .initial = Initial::zeros},
                           {.name = "running_var", .shape = channels, .initial = Initial::ones}}};
  }

  KernelSpec spec(const tensor::Shape& input) const override { return spec_of(layer_, input); }

  std::unique_ptr<LayerKernel> kernel(tensor::Engine& engine, const tensor::Shape& input,
                                      bool /*input_gradient*/,
                                      KernelPurpose /*purpose*/) const override {
    return std::make_unique<BatchNormKernel>(engine, spec_of(layer_, input));
  }

  std::unique_ptr<LayerKernel> bf16_kernel(tensor::Engine& engine, const tensor::Shape& input,
                                           bool /*input_gradient*/,
                                           KernelPurpose /*purpose*/) const override {
    return std::make_unique<BatchNormKernel>(engine,
                                             spec_of(layer_, input, tensor::DataType::bf16));
  }

  std::unique_ptr<LayerKernel> grid_kernel(const KernelContext& context, const NodeLayout& layout,
                                           bool /*input_gradient*/) const override {
    return make_batch_norm_on_grid(context, layer_, layout, context.statistics);
  }

  tensor::KernelMemory memory(const PlannedKernel& kernel) const override {
    // At the most: where no other rank shares the statistics, nothing is exchanged.
    const Box x = kernel.layout.x.box_of(kernel.rank);
    if (x.c.empty()) return {};
    const bool shared = kernel.statistics != BatchNormScope::rank;
    return kernel.kernels.of(spec_of(layer_, x.shape(), kernel.type), shared);
  }

 private:
  BatchNormLayer layer_;
};

}  // namespace

std::unique_ptr<LayerKernel> make_batch_norm_on_grid(const KernelContext& context,
                                                     const BatchNormLayer& layer,
                                                     const NodeLayout& layout,
                                                     BatchNormScope statistics) {
  return std::make_unique<BatchNormOnGrid>(context, layer, layout, statistics);
}

std::shared_ptr<const LayerType> make_layer_type(const BatchNormLayer& layer) {
  return std::make_shared<BatchNorm>(layer);
}

DescribedKind describe_batch_norm() {
  return {.name = "batch_norm",
          .keys = {"residual", "activation"},
          .make = [](const Experiment::Layer& layer) -> LayerKind {
            return BatchNormLayer{.activation = activation_of(layer, tensor::Activation::relu),
                                  .residual = !layer.residual.empty()};
          }};
}

}  // namespace rondo::train

// Convolutions whose channels and filters are split over the ranks of a replica, or over those of
// each tile of its images.
//
// Stationary-X, -Y and -W as one: a convolution of a part of C to a part of F, the channels of its
// input gathered before it if p_F > 1, its output summed and scattered after it if p_C > 1. See
// partition.hpp.
//
// One step, on each rank:
//
// 1. forward: allgather x among the p_F; convolve; reduce-scatter y among the p_C; bias and ReLU
//    on the own part of y (in the kernel itself where p_C == 1).
// 2. backward_parameters: ReLU's mask on the own dy; allgather dy among the p_C, while the bias's
//    gradient is summed; the gradient of the weights.
// 3. backward_input: from the gathered dy; reduce-scatter dx among the p_F.
//
// What lies between the gathers and the sums is a kernel of a whole convolution with fewer channels
// and filters. Where images are split, too, it is that of convolution_in_space.cpp: what has been
// gathered is one tile, and its halo comes from those who have gathered the same channels. So a
// halo of x has p_C-th parts of all channels, and one of dy p_F-th parts of all filters.
//
// Two buffers serve four purposes. The gathered x is last read in 2., so that the partial sums of
// dx take its place; the partial sums of y are last read in 1., and the gathered dy takes theirs.
// A step therefore is 1., 2., 3., with nothing in between.
//
// In bf16 what is gathered is bf16, half the bytes. Partial sums are fp32, as the kernel has them,
// are added in fp32, and only then rounded: so a split value is rounded once, as an unsplit one is,
// however many ranks add to it. Tiles have no such kernel: they are refused in bf16.
//
// A rank without channels or filters computes nothing, adds zeros and communicates as the others.
// Whether the gradient of the input is wanted is told when the kernel is made, not by dx.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <rondo/tensor/convolution.hpp>
#include <rondo/tensor/elementwise.hpp>
#include <rondo/tensor/tensor.hpp>
#include <rondo/train/partition.hpp>

#include "grid/exchange.hpp"
#include "layers/kernel_memories.hpp"
#include "layers/split_kernels.hpp"
#include "layers/weighted_kernel.hpp"

namespace rondo::train {
namespace {

void require_fit(const NodeLayout& layout) {
  const Parts& parts = layout.x.parts();
  const LayerSplit& split = layout.split;
  if (!layout.by_channel() || parts.h != split.h || parts.w != split.w) {
    throw std::invalid_argument(
        "convolution by channel: its input must be split over samples and channels, and over rows "
        "and columns as the layer is");
  }
  if (layout.y != output_of(layout.x, split.channels, layout.y.extents())) {
    throw std::invalid_argument("convolution by channel: its output must lie as output_of() says");
  }
  // Ranks without channels would have to pass on the halos of others.
  const std::int64_t least = std::min(layout.x.extents().c, layout.y.extents().c);
  if (layout.in_space() && least < split.channels.ranks()) {
    throw std::invalid_argument(
        "convolution by channel: each rank of a tile needs a channel and a filter");
  }
}

// The convolution of one rank between the gathers and the sums.
struct PartOfConvolution {
  PartOfConvolution(const ConvolutionLayer& whole, const NodeLayout& layout, int rank)
      : layer(whole),
        input(gathered_input(layout.x, layout.split.channels, rank).shape()),
        output(partial_output(layout.x, layout.split.channels, layout.y.extents(), rank).shape()) {
    layer.filters = output.c;
    if (layout.split.channels.channels == 1) return;
    // Bias and activation follow the sum over channels, of which this is a part.
    layer.bias = false;
    layer.activation = tensor::Activation::none;
  }

  [[nodiscard]] bool is_empty() const noexcept { return input.c == 0 || output.c == 0; }

  ConvolutionLayer layer;
  tensor::Shape input;
  tensor::Shape output;
};

// Where images are not split: partial sums are fp32.
tensor::ConvolutionSpec spec_of_part(const PartOfConvolution& part, ChannelGrid grid) {
  tensor::ConvolutionSpec spec = spec_of(part.layer, part.input);
  spec.f32_output = grid.channels > 1;
  spec.f32_input_gradient = grid.filters > 1;
  return spec;
}

// Where they are: a layer that is split in space alone, of which ranks hold what they gather.
NodeLayout layout_of_part(const NodeLayout& layout) {
  const LayerSplit& split = layout.split;
  return {.split = {.kind = SplitKind::space, .h = split.h, .w = split.w},
          .x = gathered_inputs(layout.x, split.channels),
          .y = gathered_outputs(layout.x, split.channels, layout.y.extents())};
}

std::unique_ptr<LayerKernel> make_part(const KernelContext& context, const PartOfConvolution& part,
                                       const NodeLayout& layout, bool input_gradient) {
  if (!layout.in_space()) {
    return make_weighted_kernel<tensor::Convolution>(context.engine,
                                                     spec_of_part(part, layout.split.channels),
                                                     input_gradient, context.purpose, context.type);
  }
  if (context.type != tensor::DataType::f32) {
    throw std::invalid_argument(
        "a convolution that is split in space and by channel at once has no kernel for bf16; set "
        "train.precision = \"fp32\", or split it in one way");
  }
  return make_convolution_in_space(context, part.layer, layout_of_part(layout), input_gradient);
}

/// Which ranks exchange channels with each other, and in which order.
struct Members {
  std::vector<int> colors = {};
  std::vector<int> keys = {};

  /// Color: all but the coordinate that `key` is.
  void add(int samples, int other, int others, int key) {
    colors.push_back(samples * others + other);
    keys.push_back(key);
  }
};

/// The ranks that gather x; or, with `reducing`, those that reduce y.
Members members_of(const NodeLayout& layout, bool reducing) {
  const ChannelGrid grid = layout.split.channels;
  Members members;
  for (int rank = 0; rank < layout.x.ranks(); ++rank) {
    const ChannelPosition at = position_of(layout.x, grid, rank);
    // Ranks that hold copies of the same block form process groups of their own, each of which does
    // all the work.
    const int samples =
        layout.x.block_of(rank) / grid.ranks() * layout.x.holders() + layout.x.holder_index(rank);
    if (reducing) {
      members.add(samples, at.filter, grid.filters, at.channel);
    } else {
      members.add(samples, at.channel, grid.channels, at.filter);
    }
  }

  return members;
}

// Elements of the own part of x and y that a rank keeps as fp32 sums before it rounds them.
std::int64_t own_sums(const NodeLayout& layout, int rank, bool input_gradient,
                      tensor::DataType type) {
  if (type == tensor::DataType::f32) return 0;  // sums are put where they belong at once
  const ChannelGrid grid = layout.split.channels;
  const bool of_x = grid.filters > 1 && input_gradient;
  return std::max(grid.channels > 1 ? layout.y.box_of(rank).size() : 0,
                  of_x ? layout.x.box_of(rank).size() : 0);
}

class ConvolutionByChannel final : public OneForwardKernel {
 public:
  ConvolutionByChannel(const KernelContext& context, const ConvolutionLayer& layer,
                       const NodeLayout& layout, bool input_gradient)
      : engine_(context.engine),
        type_(context.type),
        activation_(layer.activation),
        bias_(layer.bias),
        input_gradient_(input_gradient) {
    require_fit(layout);
    const ChannelGrid grid = layout.split.channels;
    const int rank = context.communicators.rank();
    const ChannelPosition at = position_of(layout.x, grid, rank);
    const PartOfConvolution part(layer, layout, rank);
    // Made by all ranks in the same order: both may split a communicator. A rank without channels
    // is a member, too.
    if (grid.filters > 1) {
      const Members members = members_of(layout, false);
      inputs_.emplace(
          context.communicators.split(members.colors, members.keys),
          shares(layout.x.extents().c, grid.ranks(), at.channel * grid.filters, grid.filters));
      all_inputs_ = tensor::Tensor(part.input, context.memory);
    }
    if (grid.channels > 1) {
      const Members members = members_of(layout, true);
      outputs_.emplace(
          context.communicators.split(members.colors, members.keys),
          shares(layout.y.extents().c, grid.ranks(), at.filter * grid.channels, grid.channels));
      all_outputs_ = tensor::Tensor(part.output, context.memory);
    }
    if (const auto sums = own_sums(layout, rank, input_gradient, type_); sums > 0) {
      sums_ = tensor::Tensor({1, 1, 1, sums}, context.memory);
    }
    if (part.is_empty()) return;
    weights_ = static_cast<std::size_t>(spec_of(part.layer, part.input).weights());
    part_ = make_part(context, part, layout, input_gradient);
  }

  void load(std::span<const float> parameters) override {
    if (part_) part_->load(parameters.first(weights_));
  }

  void backward_parameters(const BackwardOperands& operands) override {
    BackwardOperands of_part = operands;
    if (outputs_) {
      of_part.dy = gather_gradient(operands);
      of_part.gradients = operands.gradients.first(weights_);
    }
    // The gathered x is still there from forward: nothing of it is sent a second time.
    if (inputs_) of_part.x = gathered(all_inputs_);
    if (part_) part_->backward_parameters(of_part);
  }

  void backward_input(const BackwardOperands& operands) override {
    if (!input_gradient_) return;
    BackwardOperands of_part = operands;
    if (inputs_) of_part.dx = all_inputs_.view();
    if (outputs_) of_part.dy = gathered(all_outputs_);
    if (part_) {
      part_->backward_input(of_part);
    } else {
      clear(of_part.dx);
    }
    if (!inputs_) return;
    const tensor::View<float> sums = sums_for(operands.dx);
    inputs_->reduce_scatter(all_inputs_.view(), sums).wait();
    round(sums, operands.dx);
  }

  [[nodiscard]] std::string implementation() const override {
    return part_ ? part_->implementation() : "none (no channels or no filters)";
  }

 private:
  void forward(const ForwardOperands& operands) override {
    ForwardOperands of_part = operands;
    if (inputs_) {
      inputs_->allgather(operands.x, gathered(all_inputs_)).wait();
      of_part.x = gathered(all_inputs_);
    }
    if (outputs_) {
      of_part.y = all_outputs_.view();
      of_part.parameters = operands.parameters.first(weights_);
    }
    if (part_) {
      part_->forward_training(of_part, {});
    } else {
      clear(of_part.y);
    }
    if (!outputs_) return;
    const tensor::View<float> own = sums_for(operands.y);
    // A bias that was added before the sum would count once per rank, and a ReLU before it would be
    // wrong.
    outputs_->reduce_scatter(all_outputs_.view(), own).wait();
    tensor::add_bias(engine_, operands.parameters.subspan(weights_), activation_, own);
    round(own, operands.y);
  }

  // The own dy, masked by the activation that followed the sum, with that of the others.
  [[nodiscard]] tensor::AnyView gather_gradient(const BackwardOperands& operands) {
    if (activation_ == tensor::Activation::relu) {
      tensor::backward_relu(engine_, operands.y, operands.dy);
    }
    // Posted before the sum over pixels, which needs the own dy alone.
    transport::Request gathering = outputs_->allgather(operands.dy, gathered(all_outputs_));
    if (bias_) {
      tensor::sum_pixels(engine_, operands.dy, operands.gradients.subspan(weights_));
    }
    gathering.wait();
    return gathered(all_outputs_);
  }

  // What was gathered lies in the front of a buffer that has room for as many sums.
  [[nodiscard]] tensor::AnyView gathered(tensor::Tensor& buffer) const {
    return {buffer.data(), buffer.shape(), type_};
  }

  // Where the sums of `own` go: there, if that is fp32.
  [[nodiscard]] tensor::View<float> sums_for(const tensor::AnyView& own) {
    if (type_ == tensor::DataType::f32) return own.as<float>();
    return {sums_.data(), own.shape};
  }

  void round(const tensor::View<float>& sums, const tensor::AnyView& own) {
    if (type_ != tensor::DataType::f32) tensor::convert(engine_, sums, own);
  }

  tensor::Engine& engine_;
  tensor::DataType type_;
  tensor::Activation activation_;
  bool bias_;
  bool input_gradient_;
  std::size_t weights_ = 0;
  std::optional<ChannelExchange> inputs_;   ///< if p_F > 1
  std::optional<ChannelExchange> outputs_;  ///< if p_C > 1
  std::unique_ptr<LayerKernel> part_;       ///< none: no channels or no filters
  tensor::Tensor all_inputs_;
  tensor::Tensor all_outputs_;
  tensor::Tensor sums_;  ///< of the own part of y, then of dx; none in fp32
};

}  // namespace

std::unique_ptr<LayerKernel> make_convolution_by_channel(const KernelContext& context,
                                                         const ConvolutionLayer& layer,
                                                         const NodeLayout& layout,
                                                         bool input_gradient) {
  return std::make_unique<ConvolutionByChannel>(context, layer, layout, input_gradient);
}

// The two buffers of the head comment, and the kernel of the part.
tensor::KernelMemory memory_by_channel(const ConvolutionLayer& layer, const PlannedKernel& kernel) {
  const NodeLayout& layout = kernel.layout;
  const ChannelGrid grid = layout.split.channels;
  const PartOfConvolution part(layer, layout, kernel.rank);
  tensor::KernelMemory memory;
  if (grid.filters > 1) memory.own += float_bytes(part.input.size());
  if (grid.channels > 1) memory.own += float_bytes(part.output.size());
  memory.own += float_bytes(own_sums(layout, kernel.rank, kernel.input_gradient, kernel.type));
  if (part.is_empty()) return memory;
  if (layout.in_space()) {
    const NodeLayout in_space = layout_of_part(layout);
    add_memory(memory, memory_in_space(part.layer, {.kernels = kernel.kernels,
                                                    .layout = in_space,
                                                    .rank = kernel.rank,
                                                    .input_gradient = kernel.input_gradient,
                                                    .statistics = kernel.statistics,
                                                    .type = kernel.type}));
    return memory;
  }
  tensor::ConvolutionSpec spec = spec_of_part(part, grid);
  spec.type = kernel.type;
  if (!kernel.input_gradient) spec.input_gradient = tensor::InputGradient::unused;
  add_memory(memory, kernel.kernels.of(spec));
  return memory;
}

}  // namespace rondo::train

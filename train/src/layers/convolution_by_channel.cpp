// Convolutions whose channels and filters are split over the ranks of a replica.
//
// Stationary-X, -Y and -W as one: a convolution of a part of C to a part of F, the channels of its
// input gathered before it if p_F > 1, its output summed and scattered after it if p_C > 1. See
// channel_grid.hpp.
//
// One step, on each rank:
//
// 1. forward: allgather x among the p_F; convolve; reduce-scatter y among the p_C; bias and ReLU
//    on the own part of y (in the kernel itself where p_C == 1).
// 2. backward_parameters: ReLU's mask on the own dy; allgather dy among the p_C, while the bias's
//    gradient is summed; the gradient of the weights.
// 3. backward_input: from the gathered dy; reduce-scatter dx among the p_F.
//
// Two buffers serve four purposes. The gathered x is last read in 2., so that the partial sums of
// dx take its place; the partial sums of y are last read in 1., and the gathered dy takes theirs.
// A step therefore is 1., 2., 3., with nothing in between.
//
// In bf16 what is gathered is bf16, half the bytes. Partial sums are fp32, as the kernel has them,
// are added in fp32, and only then rounded: so a split value is rounded once, as an unsplit one is,
// however many ranks add to it.
//
// A rank without channels or filters computes nothing, adds zeros and communicates as the others.
// Whether the gradient of the input is wanted is told when the kernel is made, not by dx.

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <rondo/tensor/convolution.hpp>
#include <rondo/tensor/elementwise.hpp>
#include <rondo/tensor/tensor.hpp>
#include <rondo/train/partition.hpp>

#include "grid/exchange.hpp"
#include "layers/kernel_memories.hpp"
#include "layers/split_kernels.hpp"

namespace rondo::train {
namespace {

void require_fit(const NodeLayout& layout) {
  const Parts& parts = layout.x.parts();
  if (layout.split.kind != SplitKind::channel || parts.h != 1 || parts.w != 1) {
    throw std::invalid_argument(
        "convolution by channel: its input must be split over samples and channels alone");
  }

  if (layout.y != output_of(layout.x, layout.split.channels, layout.y.extents())) {
    throw std::invalid_argument("convolution by channel: its output must lie as output_of() says");
  }
}

// Of the part of the convolution that a rank computes. Bias and activation follow the sum over
// channels: they are this kernel's only where that sum is whole.
struct PartOfConvolution {
  tensor::Shape input = {};
  std::int64_t filters = 0;
  ChannelGrid grid = {};
  bool input_gradient = true;
  tensor::DataType type = tensor::DataType::f32;
};

tensor::ConvolutionSpec spec_of_part(const ConvolutionLayer& layer, const PartOfConvolution& part) {
  const bool is_partial = part.grid.channels > 1;
  tensor::ConvolutionSpec spec = spec_of(layer, part.input);
  spec.filters = part.filters;
  spec.type = part.type;
  spec.f32_output = is_partial;
  spec.f32_input_gradient = part.grid.filters > 1;
  spec.bias = layer.bias && !is_partial;
  if (is_partial) spec.activation = tensor::Activation::none;
  if (!part.input_gradient) spec.input_gradient = tensor::InputGradient::unused;
  return spec;
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
    const tensor::Shape x = layout.x.extents();
    const tensor::Shape y = layout.y.extents();
    const tensor::Shape input = gathered_input(layout.x, grid, rank).shape();
    const tensor::Shape output = partial_output(layout.x, grid, y, rank).shape();
    // Made by all ranks in the same order: both may split a communicator. A rank without channels
    // is a member, too.
    if (grid.filters > 1) {
      const Members members = members_of(layout, false);
      inputs_.emplace(context.communicators.split(members.colors, members.keys),
                      shares(x.c, grid.ranks(), at.channel * grid.filters, grid.filters));
      all_inputs_ = tensor::Tensor(input, context.memory);
    }
    if (grid.channels > 1) {
      const Members members = members_of(layout, true);
      outputs_.emplace(context.communicators.split(members.colors, members.keys),
                       shares(y.c, grid.ranks(), at.filter * grid.channels, grid.channels));
      all_outputs_ = tensor::Tensor(output, context.memory);
    }
    if (const auto sums = own_sums(layout, rank, input_gradient, type_); sums > 0) {
      sums_ = tensor::Tensor({1, 1, 1, sums}, context.memory);
    }
    if (input.c > 0 && output.c > 0) {
      make_convolution(layer, {input, output.c, grid, input_gradient, type_}, context.trains());
    }
  }

  void load(std::span<const float> parameters) override {
    if (convolution_) convolution_->pack_weights(parameters.first(weights_));
  }

  void backward_parameters(const BackwardOperands& operands) override {
    if (activation_ == tensor::Activation::relu) {
      tensor::backward_relu(engine_, operands.y, operands.dy);
    }
    const auto bias_gradient = operands.gradients.subspan(weights_);
    transport::Request gathering;
    if (outputs_) {
      // Posted before the sum over pixels, which needs the own dy alone.
      gathering = outputs_->allgather(operands.dy, gathered(all_outputs_));
      if (bias_) tensor::sum_pixels(engine_, operands.dy, bias_gradient);
    }
    gathering.wait();
    if (!convolution_) return;
    // The gathered x is still there from forward: nothing of it is sent a second time.
    convolution_->backward_weights(inputs_ ? gathered(all_inputs_) : operands.x,
                                   outputs_ ? gathered(all_outputs_) : operands.dy,
                                   outputs_ ? std::span<float>() : bias_gradient);
    convolution_->unpack_gradients(operands.gradients.first(weights_));
  }

  void backward_input(const BackwardOperands& operands) override {
    if (!input_gradient_) return;
    const tensor::AnyView dx = inputs_ ? tensor::AnyView(all_inputs_.view()) : operands.dx;
    if (convolution_) {
      convolution_->backward_data(outputs_ ? gathered(all_outputs_) : operands.dy, dx);
    } else {
      clear(dx);
    }
    if (!inputs_) return;
    const tensor::View<float> sums = sums_for(operands.dx);
    inputs_->reduce_scatter(all_inputs_.view(), sums).wait();
    round(sums, operands.dx);
  }

  [[nodiscard]] std::string implementation() const override {
    return convolution_ ? convolution_->implementation() : "none (no channels or no filters)";
  }

 private:
  void make_convolution(const ConvolutionLayer& layer, const PartOfConvolution& part, bool trains) {
    tensor::ConvolutionSpec spec = spec_of_part(layer, part);
    if (!trains) spec.weight_gradient = tensor::WeightGradient::unused;
    convolution_.emplace(engine_, spec);
    weights_ = static_cast<std::size_t>(spec.weights());
  }

  void forward(const ForwardOperands& operands) override {
    tensor::ConstAnyView x = operands.x;
    if (inputs_) {
      inputs_->allgather(x, gathered(all_inputs_)).wait();
      x = gathered(all_inputs_);
    }
    const auto bias = operands.parameters.subspan(weights_);
    const tensor::AnyView y = outputs_ ? tensor::AnyView(all_outputs_.view()) : operands.y;
    if (convolution_) {
      convolution_->forward(x, outputs_ ? std::span<const float>() : bias, y);
    } else {
      clear(y);
    }
    if (!outputs_) return;
    const tensor::View<float> own = sums_for(operands.y);
    // A bias that was added before the sum would count once per rank, and a ReLU before it would be
    // wrong.
    outputs_->reduce_scatter(all_outputs_.view(), own).wait();
    tensor::add_bias(engine_, bias, activation_, own);
    round(own, operands.y);
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
  std::optional<tensor::Convolution> convolution_;
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

// The two buffers of the head comment, and the kernel.
tensor::KernelMemory memory_by_channel(const ConvolutionLayer& layer, const PlannedKernel& kernel) {
  const NodeLayout& layout = kernel.layout;
  const ChannelGrid grid = layout.split.channels;
  const tensor::Shape input = gathered_input(layout.x, grid, kernel.rank).shape();
  const tensor::Shape output =
      partial_output(layout.x, grid, layout.y.extents(), kernel.rank).shape();
  tensor::KernelMemory memory;
  if (grid.filters > 1) memory.own += float_bytes(input.size());
  if (grid.channels > 1) memory.own += float_bytes(output.size());
  memory.own += float_bytes(own_sums(layout, kernel.rank, kernel.input_gradient, kernel.type));
  if (input.c == 0 || output.c == 0) return memory;
  add_memory(memory, kernel.kernels.of(spec_of_part(
                         layer, {input, output.c, grid, kernel.input_gradient, kernel.type})));
  return memory;
}

}  // namespace rondo::train

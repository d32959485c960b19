#include "layers/convolution_by_channel.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include <rondo/tensor/elementwise.hpp>

#include "grid/replica.hpp"
#include "layers/grid_kernels.hpp"
#include "model/specs.hpp"

namespace rondo::train {
namespace {

void require_fit(const GridLayer& place) {
  const Parts& parts = place.x.parts();
  if (place.split.kind != SplitKind::channel || parts.h != 1 || parts.w != 1) {
    throw std::invalid_argument(
        "convolution by channel: its input must be split over samples and channels alone");
  }
  if (place.y != output_of(place.x, place.split.channels, place.y.extents())) {
    throw std::invalid_argument("convolution by channel: its output must lie as output_of() says");
  }
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
Members members_of(const GridLayer& place, bool reducing) {
  const ChannelGrid grid = place.split.channels;
  Members members;
  for (int rank = 0; rank < place.x.ranks(); ++rank) {
    const ChannelPlace at = place_of(place.x, grid, rank);
    const int samples =
        place.x.block_of(rank) / grid.ranks() * place.x.replicas() + replica_of(place.x, rank);
    if (reducing) {
      members.add(samples, at.filter, grid.filters, at.channel);
    } else {
      members.add(samples, at.channel, grid.channels, at.filter);
    }
  }
  return members;
}

void clear(const tensor::View<float>& view) { std::fill_n(view.data, view.shape.size(), 0.0F); }

}  // namespace

ConvolutionByChannel::ConvolutionByChannel(const GridContext& context,
                                           const ConvolutionLayer& layer, const GridLayer& place,
                                           bool input_gradient)
    : engine_(context.engine),
      activation_(layer.activation),
      bias_(layer.bias),
      input_gradient_(input_gradient) {
  require_fit(place);
  const ChannelGrid grid = place.split.channels;
  const int rank = context.communicators.rank();
  const ChannelPlace at = place_of(place.x, grid, rank);
  const tensor::Shape x = place.x.extents();
  const tensor::Shape y = place.y.extents();
  const tensor::Shape input = gathered_input(place.x, grid, rank).shape();
  const tensor::Shape output = partial_output(place.x, grid, y, rank).shape();
  if (grid.filters > 1) {
    const Members members = members_of(place, false);
    inputs_.emplace(context.communicators.split(members.colors, members.keys),
                    shares(x.c, grid.ranks(), at.channel * grid.filters, grid.filters));
    all_inputs_ = tensor::Tensor(input, context.memory);
  }
  if (grid.channels > 1) {
    const Members members = members_of(place, true);
    outputs_.emplace(context.communicators.split(members.colors, members.keys),
                     shares(y.c, grid.ranks(), at.filter * grid.channels, grid.channels));
    all_outputs_ = tensor::Tensor(output, context.memory);
  }
  if (input.c > 0 && output.c > 0) make_convolution(layer, input, output, context.trains());
}

// Bias and activation follow the sum over channels: they are this kernel's where that is whole.
void ConvolutionByChannel::make_convolution(const ConvolutionLayer& layer, tensor::Shape input,
                                            tensor::Shape output, bool trains) {
  tensor::ConvolutionSpec spec = spec_of(layer, input);
  spec.filters = output.c;
  spec.bias = bias_ && !outputs_;
  if (outputs_) spec.activation = tensor::Activation::none;
  if (!input_gradient_) spec.input_gradient = tensor::InputGradient::unused;
  if (!trains) spec.weight_gradient = tensor::WeightGradient::unused;
  convolution_.emplace(engine_, spec);
  weights_ = static_cast<std::size_t>(spec.weights());
}

void ConvolutionByChannel::load(std::span<const float> parameters) {
  if (convolution_) convolution_->pack_weights(parameters.first(weights_));
}

void ConvolutionByChannel::forward(const ForwardOperands& operands) {
  tensor::View<const float> x = operands.x;
  if (inputs_) {
    inputs_->allgather(x, all_inputs_.view()).wait();
    x = std::as_const(all_inputs_).view();
  }
  const auto bias = operands.parameters.subspan(weights_);
  const tensor::View<float> y = outputs_ ? all_outputs_.view() : operands.y;
  if (convolution_) {
    convolution_->forward(x, outputs_ ? std::span<const float>() : bias, y);
  } else {
    clear(y);
  }
  if (!outputs_) return;
  outputs_->reduce_scatter(y, operands.y).wait();
  tensor::add_bias(engine_, bias, activation_, operands.y);
}

void ConvolutionByChannel::backward_parameters(const BackwardOperands& operands) {
  if (activation_ == tensor::Activation::relu) {
    tensor::backward_relu(engine_, operands.y, operands.dy);
  }
  const auto bias_gradient = operands.gradients.subspan(weights_);
  transport::Request gathering;
  if (outputs_) {
    gathering = outputs_->allgather(operands.dy, all_outputs_.view());
    if (bias_) tensor::sum_pixels(engine_, operands.dy, bias_gradient);
  }
  gathering.wait();
  if (!convolution_) return;
  convolution_->backward_weights(inputs_ ? all_inputs_.view() : operands.x,
                                 outputs_ ? all_outputs_.view() : operands.dy,
                                 outputs_ ? std::span<float>() : bias_gradient);
  convolution_->unpack_gradients(operands.gradients.first(weights_));
}

void ConvolutionByChannel::backward_input(const BackwardOperands& operands) {
  if (!input_gradient_) return;
  const tensor::View<float> dx = inputs_ ? all_inputs_.view() : operands.dx;
  if (convolution_) {
    convolution_->backward_data(outputs_ ? all_outputs_.view() : operands.dy, dx);
  } else {
    clear(dx);
  }
  if (inputs_) inputs_->reduce_scatter(dx, operands.dx).wait();
}

std::string ConvolutionByChannel::implementation() const {
  return convolution_ ? convolution_->implementation() : "none (no channels or no filters)";
}

std::unique_ptr<LayerKernel> make_convolution_by_channel(const GridContext& context,
                                                         const ConvolutionLayer& layer,
                                                         const GridLayer& place,
                                                         bool input_gradient) {
  return std::make_unique<ConvolutionByChannel>(context, layer, place, input_gradient);
}

}  // namespace rondo::train

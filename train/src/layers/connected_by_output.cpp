#include "layers/connected_by_output.hpp"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "layers/grid_kernels.hpp"
#include "model/specs.hpp"

namespace rondo::train {
namespace {

void require_fit(const GridLayer& place, ProcessGrid grid) {
  if (place.x == by_group(place.x.extents(), grid) &&
      place.y == by_group(place.y.extents(), grid)) {
    return;
  }
  throw std::invalid_argument(
      "fully connected by output: all ranks of a group must hold the same input and output");
}

}  // namespace

ConnectedByOutput::ConnectedByOutput(const GridContext& context, const FullyConnectedLayer& layer,
                                     const GridLayer& place, bool input_gradient)
    : group_(context.communicators.group()),
      activation_(layer.activation),
      input_gradient_(input_gradient),
      outputs_(group_, shares(layer.outputs, group_.size(), 0, group_.size())) {
  require_fit(place, context.communicators.grid());
  const Range own = even_range(layer.outputs, group_.size(), group_.rank());
  const tensor::Shape input = place.x.box_of(context.communicators.rank()).shape();
  first_output_ = own.first;
  own_outputs_ = tensor::Tensor({input.n, 1, 1, own.size()}, context.memory);
  if (own.empty()) return;
  tensor::FullyConnectedSpec spec = spec_of(layer, input);
  spec.outputs = own.size();
  if (!input_gradient) spec.input_gradient = tensor::InputGradient::unused;
  if (!context.trains()) spec.weight_gradient = tensor::WeightGradient::unused;
  connected_.emplace(context.engine, spec);
  weights_ = static_cast<std::size_t>(spec.weights());
}

void ConnectedByOutput::load(std::span<const float> parameters) {
  if (connected_) connected_->pack_weights(parameters.first(weights_));
}

void ConnectedByOutput::forward(const ForwardOperands& operands) {
  if (connected_) {
    connected_->forward(operands.x, operands.parameters.subspan(weights_), own_outputs_.view());
  }
  outputs_.allgather(own_outputs_.view(), operands.y).wait();
}

void ConnectedByOutput::take_own(const tensor::View<const float>& y,
                                 const tensor::View<const float>& dy) {
  const tensor::Shape& own = own_outputs_.shape();
  for (std::int64_t n = 0; n < own.n; ++n) {
    const float* from = dy.image(n) + first_output_;
    float* into = own_outputs_.data() + n * own.c;
    if (activation_ == tensor::Activation::none) {
      std::copy_n(from, own.c, into);
    } else {
      std::transform(from, from + own.c, y.image(n) + first_output_, into,
                     [](float gradient, float output) { return output <= 0.0F ? 0.0F : gradient; });
    }
  }
}

void ConnectedByOutput::backward_parameters(const BackwardOperands& operands) {
  take_own(operands.y, operands.dy);
  if (!connected_) return;
  connected_->backward_weights(operands.x, own_outputs_.view(),
                               operands.gradients.subspan(weights_));
  connected_->unpack_gradients(operands.gradients.first(weights_));
}

void ConnectedByOutput::backward_input(const BackwardOperands& operands) {
  if (!input_gradient_) return;
  const std::span dx(operands.dx.data, static_cast<std::size_t>(operands.dx.shape.size()));
  if (connected_) {
    connected_->backward_data(own_outputs_.view(), operands.dx);
  } else {
    std::ranges::fill(dx, 0.0F);
  }
  if (group_.size() > 1) group_.allreduce(dx).wait();
}

std::string ConnectedByOutput::implementation() const {
  return connected_ ? connected_->implementation() : "none (no outputs)";
}

std::unique_ptr<LayerKernel> make_connected_by_output(const GridContext& context,
                                                      const FullyConnectedLayer& layer,
                                                      const GridLayer& place, bool input_gradient) {
  return std::make_unique<ConnectedByOutput>(context, layer, place, input_gradient);
}

}  // namespace rondo::train

#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include <rondo/tensor/fully_connected.hpp>
#include <rondo/tensor/tensor.hpp>

#include "grid/channel_exchange.hpp"
#include "layers/grid_context.hpp"
#include "layers/grid_layer.hpp"
#include "layers/layer_kernel.hpp"

namespace rondo::train {

/// A fully connected layer by the 1.5D algorithm (Gholami, Azad, Jin, Keutzer, Buluc, "Integrated
/// Model, Batch, and Domain Parallelism in Training Neural Networks", SPAA 2018). The ranks of a
/// group hold the same samples, and each a range of the outputs with its weights and bias.
///
/// forward: the own outputs, activation included, then an allgather of y over the group;
/// backward_parameters: the own columns of dy, masked, give the own weights' gradients;
/// backward_input: partial sums of dx, then an allreduce of dx over the group.
///
/// A rank without outputs adds zeros and communicates as the others.
class ConnectedByOutput final : public OneForwardKernel {
 public:
  ConnectedByOutput(const GridContext& context, const FullyConnectedLayer& layer,
                    const GridLayer& place, bool input_gradient);

  void load(std::span<const float> parameters) override;
  void backward_parameters(const BackwardOperands& operands) override;
  void backward_input(const BackwardOperands& operands) override;
  [[nodiscard]] std::string implementation() const override;

 private:
  void forward(const ForwardOperands& operands) override;
  /// Own columns of dy into own_outputs_.
  void take_own(const tensor::View<const float>& y, const tensor::View<const float>& dy);

  transport::Communicator& group_;
  tensor::Activation activation_;
  bool input_gradient_;
  std::int64_t first_output_ = 0;
  std::size_t weights_ = 0;
  ChannelExchange outputs_;
  std::optional<tensor::FullyConnected> connected_;
  tensor::Tensor own_outputs_;  ///< of y, then of dy
};

}  // namespace rondo::train

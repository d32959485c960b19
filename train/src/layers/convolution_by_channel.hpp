#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include <rondo/tensor/convolution.hpp>
#include <rondo/tensor/tensor.hpp>
#include <rondo/train/channel_grid.hpp>

#include "grid/channel_exchange.hpp"
#include "layers/grid_context.hpp"
#include "layers/grid_layer.hpp"
#include "layers/layer_kernel.hpp"

namespace rondo::train {

/// Stationary-X, -Y and -W as one: a convolution of a part of C to a part of F, the channels of its
/// input gathered before it if p_F > 1, its output summed and scattered after it if p_C > 1. See
/// channel_grid.hpp.
///
/// One step, on each rank:
///
/// 1. forward: allgather x among the p_F; convolve; reduce-scatter y among the p_C; bias and ReLU
///    on the own part of y (in the kernel itself where p_C == 1).
/// 2. backward_parameters: ReLU's mask on the own dy; allgather dy among the p_C, while the bias's
///    gradient is summed; the gradient of the weights.
/// 3. backward_input: from the gathered dy; reduce-scatter dx among the p_F.
///
/// Two buffers serve four purposes. The gathered x is last read in 2., so that the partial sums of
/// dx take its place; the partial sums of y are last read in 1., and the gathered dy takes theirs.
/// A step therefore is 1., 2., 3., with nothing in between.
///
/// A rank without channels or filters computes nothing, adds zeros and communicates as the others.
/// Whether the gradient of the input is wanted is told when the kernel is made, not by dx.
class ConvolutionByChannel final : public OneForwardKernel {
 public:
  ConvolutionByChannel(const GridContext& context, const ConvolutionLayer& layer,
                       const GridLayer& place, bool input_gradient);

  void load(std::span<const float> parameters) override;
  void backward_parameters(const BackwardOperands& operands) override;
  void backward_input(const BackwardOperands& operands) override;
  [[nodiscard]] std::string implementation() const override;

 private:
  void make_convolution(const ConvolutionLayer& layer, tensor::Shape input, tensor::Shape output,
                        bool trains);
  void forward(const ForwardOperands& operands) override;

  tensor::Engine& engine_;
  tensor::Activation activation_;
  bool bias_;
  bool input_gradient_;
  std::size_t weights_ = 0;
  std::optional<ChannelExchange> inputs_;   ///< if p_F > 1
  std::optional<ChannelExchange> outputs_;  ///< if p_C > 1
  std::optional<tensor::Convolution> convolution_;
  tensor::Tensor all_inputs_;
  tensor::Tensor all_outputs_;
};

}  // namespace rondo::train

#pragma once

#include <optional>
#include <span>

#include <rondo/tensor/shape.hpp>

#include "layers/batch_norm_kernel.hpp"
#include "layers/grid_context.hpp"
#include "layers/grid_kernels.hpp"
#include "layers/grid_layer.hpp"
#include "layers/layer_kernel.hpp"

namespace rondo::train {

/// Batch norm of this rank's box, its statistics shared with the ranks that hold the same channels
/// of other samples and pixels: those of its group, or all. Of ranks that hold the same block each
/// shares with other ones, so that no sample counts twice. Where GridContext::across is given, it
/// reaches the other groups: `all` sums over this one's ranks, then over them.
///
/// A rank without pixels takes part with zeros. One without channels has nothing to share.
class BatchNormOnGrid final : public LayerKernel {
 public:
  BatchNormOnGrid(const GridContext& context, const BatchNormLayer& layer, const GridLayer& place,
                  BatchNormGroup statistics);

  void forward_training(const ForwardOperands& operands, std::span<float> statistics) override;
  void forward_inference(const ForwardOperands& operands,
                         std::span<const float> statistics) override;
  void backward_parameters(const BackwardOperands& operands) override;

 private:
  [[nodiscard]] ForwardOperands without_images(const ForwardOperands& operands) const;
  [[nodiscard]] BackwardOperands without_images(const BackwardOperands& operands) const;

  tensor::Shape box_;  ///< without elements: no images of one pixel
  bool residual_;
  std::optional<BatchNormKernel> kernel_;  ///< none where there are no channels
};

}  // namespace rondo::train

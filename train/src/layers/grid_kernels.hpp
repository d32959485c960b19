#pragma once

#include <memory>

#include <rondo/train/grid.hpp>
#include <rondo/train/model.hpp>

#include "layers/grid_context.hpp"
#include "layers/grid_layer.hpp"
#include "layers/layer_kernel.hpp"

namespace rondo::train {

/// The kernel of `layer` as this rank runs it. Its operands are this rank's boxes of `place.x` and
/// `place.y`, dense; parameters and gradients are this rank's slice of the layer's, weights (oihw,
/// or outputs x inputs) in front of the bias.
///
///     sample, group, space   all weights, all of the bias
///     channel, convolution   filters partial_output() and channels gathered_input() of the
///                            weights; of the bias what belongs to this rank's box of y
///     channel, connected     the outputs of this rank's part by even_range(outputs, pr, position),
///                            weights and bias; y lies by_group()
///     batch norm             the channels of this rank's box
///
/// Gradients of the parameters are sums over what this rank has computed: over its own samples and
/// pixels, which are all of its group's samples where the split is `channel` or `group`.
///
/// Made by all ranks together, in the same order. Boxes may be empty of samples, rows or columns,
/// of channels only where the split is `channel` and for batch norm; every call communicates all
/// the same. Pooling and changes of layout are told by a dx without an address that no rank wants
/// it: a view of no elements has one.
[[nodiscard]] std::unique_ptr<LayerKernel> make_convolution_in_space(const GridContext& context,
                                                                     const ConvolutionLayer& layer,
                                                                     const GridLayer& place,
                                                                     bool input_gradient);
[[nodiscard]] std::unique_ptr<LayerKernel> make_pooling_in_space(const GridContext& context,
                                                                 const PoolingLayer& layer,
                                                                 const GridLayer& place);
[[nodiscard]] std::unique_ptr<LayerKernel> make_global_average_on_grid(const GridContext& context,
                                                                       const GridLayer& place);
[[nodiscard]] std::unique_ptr<LayerKernel> make_convolution_by_channel(
    const GridContext& context, const ConvolutionLayer& layer, const GridLayer& place,
    bool input_gradient);
[[nodiscard]] std::unique_ptr<LayerKernel> make_connected_by_output(
    const GridContext& context, const FullyConnectedLayer& layer, const GridLayer& place,
    bool input_gradient);

[[nodiscard]] std::unique_ptr<LayerKernel> make_batch_norm_on_grid(const GridContext& context,
                                                                   const BatchNormLayer& layer,
                                                                   const GridLayer& place,
                                                                   BatchNormGroup statistics);

/// Brings a value from one layout to another, and its gradient back.
[[nodiscard]] std::unique_ptr<LayerKernel> make_redistribution(const GridContext& context,
                                                               const Partition& from,
                                                               const Partition& to);

}  // namespace rondo::train

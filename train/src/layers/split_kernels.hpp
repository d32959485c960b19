#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <rondo/tensor/tensor.hpp>
#include <rondo/train/redistribution.hpp>

#include "grid/exchange.hpp"
#include "layers/layer_type.hpp"

namespace rondo::train {

/// The kernel of `layer` as this rank runs it. Its operands are this rank's boxes of `layout.x` and
/// `layout.y`, dense; parameters and gradients are this rank's slice of the layer's, weights (oihw,
/// or outputs x inputs) in front of the bias.
///
///     sample, replica, space all weights, all of the bias
///     channel, convolution,  filters partial_output() and channels gathered_input() of the
///     also with space        weights; of the bias what belongs to this rank's box of y
///     channel, connected     the outputs of this rank's part by even_range(outputs, pr, position),
///                            weights and bias; y lies by_replica()
///     batch norm             the channels of this rank's box
///
/// Gradients of the parameters are sums over what this rank has computed: over its own samples and
/// pixels, which are all of its replica's where the split is `channel` or `replica`.
///
/// Made by all ranks together, in the same order. Boxes may be empty of samples, rows or columns,
/// of channels only where the split is `channel` alone and for batch norm; every call communicates
/// all the same. Pooling and changes of layout are told by a dx without an address that no rank
/// wants it: a view of no elements has one.
[[nodiscard]] std::unique_ptr<LayerKernel> make_convolution_in_space(const KernelContext& context,
                                                                     const ConvolutionLayer& layer,
                                                                     const NodeLayout& layout,
                                                                     bool input_gradient);
[[nodiscard]] std::unique_ptr<LayerKernel> make_pooling_in_space(const KernelContext& context,
                                                                 const PoolingLayer& layer,
                                                                 const NodeLayout& layout);
[[nodiscard]] std::unique_ptr<LayerKernel> make_global_average_on_grid(const KernelContext& context,
                                                                       const NodeLayout& layout);
[[nodiscard]] std::unique_ptr<LayerKernel> make_convolution_by_channel(
    const KernelContext& context, const ConvolutionLayer& layer, const NodeLayout& layout,
    bool input_gradient);
[[nodiscard]] std::unique_ptr<LayerKernel> make_connected_by_output(
    const KernelContext& context, const FullyConnectedLayer& layer, const NodeLayout& layout,
    bool input_gradient);

[[nodiscard]] std::unique_ptr<LayerKernel> make_batch_norm_on_grid(const KernelContext& context,
                                                                   const BatchNormLayer& layer,
                                                                   const NodeLayout& layout,
                                                                   BatchNormScope statistics);

/// Brings a value from one layout to another, and its gradient back.
[[nodiscard]] std::unique_ptr<LayerKernel> make_redistribution(const KernelContext& context,
                                                               const Partition& from,
                                                               const Partition& to);
/// The bytes that it allocates on `rank`.
[[nodiscard]] std::size_t redistribution_bytes(const Partition& from, const Partition& to, int rank,
                                               tensor::DataType type);

/// The part that a rank's kernel reads of an array that is split in space: its own part where it
/// needs no more, else a copy of it with the halo around.
class NeededPart {
 public:
  /// The array lies by `held`; rank r needs `needs[r]`. This rank's kernel is given `reads`, which
  /// contains what it needs; what it does not need is zero there unless it reads its own part.
  NeededPart(const KernelContext& context, const Partition& held, std::span<const Box> needs,
             const Box& reads);

  /// The bytes that the constructor allocates on `rank`.
  [[nodiscard]] static std::size_t bytes(const Partition& held, std::span<const Box> needs,
                                         const Box& reads, int rank, tensor::DataType type);

  /// Sends what others need of `own`, and copies what this rank needs of it. Where reads_own()
  /// `own` must stay as it is for as long as it is read.
  void start(const tensor::ConstAnyView& own);
  /// Waits for what others send. Gives what the kernel reads, valid until the next start().
  [[nodiscard]] tensor::ConstAnyView finish();
  /// The last result of finish().
  [[nodiscard]] const tensor::ConstAnyView& read() const noexcept { return read_; }
  /// Does the kernel read the memory that start() was given?
  [[nodiscard]] bool reads_own() const noexcept { return reads_own_; }

 private:
  bool reads_own_;
  Exchange exchange_;
  tensor::AnyTensor copy_;
  tensor::ConstAnyView read_;
};

/// Elements that all ranks send where rank r needs `needs[r]`.
[[nodiscard]] inline std::uint64_t elements_sent(const Partition& held,
                                                 std::span<const Box> needs) {
  return static_cast<std::uint64_t>(elements_moved(held, needs));
}

[[nodiscard]] tensor::ConvolutionSpec spec_of(const ConvolutionLayer& layer, tensor::Shape input);

// For LayerType::memory(): what the kernels that are made above allocate.

[[nodiscard]] tensor::KernelMemory memory_by_channel(const ConvolutionLayer& layer,
                                                     const PlannedKernel& kernel);
[[nodiscard]] tensor::KernelMemory memory_in_space(const ConvolutionLayer& layer,
                                                   const PlannedKernel& kernel);

[[nodiscard]] inline std::size_t bytes_of(std::int64_t elements, tensor::DataType type) noexcept {
  return static_cast<std::size_t>(elements) * tensor::size_of(type);
}
[[nodiscard]] inline std::size_t float_bytes(std::int64_t elements) noexcept {
  return bytes_of(elements, tensor::DataType::f32);
}
/// Makes all elements zero.
void clear(const tensor::AnyView& view);
/// Adds the memory of another kernel of the same layer; the two never run at the same time.
void add_memory(tensor::KernelMemory& sum, const tensor::KernelMemory& more) noexcept;

}  // namespace rondo::train

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <rondo/tensor/data_type.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/kernel_memory.hpp>
#include <rondo/train/export.hpp>
#include <rondo/train/halo.hpp>
#include <rondo/train/layer_kernel.hpp>
#include <rondo/train/model.hpp>
#include <rondo/train/partition.hpp>

namespace rondo::transport {
class Communicator;
}

namespace rondo::train {

// Private to the library: who is in a replica, and what oneDNN's kernels allocate.
class GridCommunicators;
class KernelMemories;

/// The weights of a layer, as a grid splits them.
enum class Weights : std::uint8_t {
  none,     ///< the layer has no split: it follows the layout of its input
  filters,  ///< of a convolution: for each channel and filter a window
  outputs,  ///< of a fully connected layer: for each output the whole image
};

/// The facts that sources outside of layers/ ask of a kind of layer. None asks which kind it is.
struct LayerTraits {
  Weights weights = Weights::none;
  bool batch_statistics = false;  ///< normalises by moments of the batch, and keeps running ones
  float momentum = 0.0F;          ///< of the running ones: what a batch counts in them
  bool averages_images = false;   ///< its outputs are means of whole images
  bool whole_channels = false;    ///< has weights, and cannot be split over channels and filters
  /// Reads channels of several values, or of one in another order: a rank of a grid must hold all
  /// channels of what it reads.
  bool joins_channels = false;
  /// Reads pixels beside the one that it writes, and sends none: a rank of a grid must hold whole
  /// images of what it reads.
  bool joins_pixels = false;
  /// Reads two values or more, of which each gets a gradient of its own from the kernel
  /// (BackwardOperands::input_gradients). Else a second value is a residual.
  bool several_inputs = false;
  bool in_place = false;     ///< backward may write the (first) input's gradient over dy
  bool only_trains = false;  ///< in evaluation it changes nothing
  /// Has windows, and where images are split in space backward computes dx with its halo, and sends
  /// that home. Else it is sent dy with its halo.
  bool returns_halo = false;
  bool any_type = false;  ///< kernel() computes in the type that its operands are of
  /// The activation that follows in the same layer; for layers with batch_statistics only.
  tensor::Activation activation = tensor::Activation::none;
};

/// A layer's parameters and statistics. Names lack the layer's ("weight"), offsets are unset.
struct LayerParameters {
  std::vector<Parameter> learned = {};
  std::vector<Parameter> statistics = {};
};

/// The tensor library's kernel for a layer; std::monostate: the layer has kernels of its own.
using KernelSpec = std::variant<std::monostate, tensor::ConvolutionSpec, tensor::BatchNormSpec,
                                tensor::PoolingSpec, tensor::FullyConnectedSpec>;

/// How ranks hold what a node reads and writes. A change of layout reads `x` and writes `y`, of the
/// same array; a layer's residual lies as its x.
///
/// Gradients lie as their values do, and are complete sums wherever they lie: a rank that holds a
/// copy of a value holds the whole gradient of what it holds.
struct NodeLayout {
  LayerSplit split = {};
  Partition x;
  Partition y;

  [[nodiscard]] bool by_channel() const noexcept { return cuts_channels(split.kind); }
  [[nodiscard]] bool in_space() const noexcept { return x.parts().h * x.parts().w > 1; }
};

/// The objects that kernels on a grid share; all are lent.
struct KernelContext {
  tensor::Engine& engine;
  GridCommunicators& communicators;
  std::pmr::memory_resource* memory = nullptr;  ///< for what travels: the World's arena
  /// Null, or the ranks of this rank's position in other replicas, whose batch norm shares
  /// statistics with this one's where they are BatchNormScope::all.
  transport::Communicator* across = nullptr;
  /// For evaluation kernels have no backward, and take no memory for it.
  KernelPurpose purpose = KernelPurpose::training;
  BatchNormScope statistics = BatchNormScope::rank;
  tensor::DataType type = tensor::DataType::f32;  ///< of activations; sums over ranks are fp32

  [[nodiscard]] bool trains() const noexcept { return purpose == KernelPurpose::training; }
  /// This rank's number within its replica: what Partition::box_of() asks for.
  [[nodiscard]] RONDO_TRAIN_API int rank() const noexcept;
};

/// The part of a layer's parameters that a rank holds: rows and columns of its weights, and
/// elements of its vectors (the bias; all that batch norm learns and measures).
struct ParameterSlice {
  Range rows = {};
  Range columns = {};
  Range elements = {};
};

/// Elements that the ranks of a replica send in one step for one layer, all together.
struct LayerTraffic {
  std::uint64_t forward = 0;
  std::uint64_t backward = 0;  ///< of activations; weight gradients are the update scheme's
  /// So many of both are parts of sums over ranks, which are sent as fp32. The others have the type
  /// of activations.
  std::uint64_t sums = 0;

  [[nodiscard]] std::uint64_t elements() const noexcept { return forward + backward; }
  [[nodiscard]] std::uint64_t bytes(tensor::DataType type) const noexcept {
    return (elements() - sums) * tensor::size_of(type) + sums * sizeof(float);
  }
};

/// One rank's part of a layer in training, for the question what its kernel allocates.
struct PlannedKernel {
  KernelMemories& kernels;
  const NodeLayout& layout;
  int rank = 0;
  bool input_gradient = true;
  BatchNormScope statistics = BatchNormScope::rank;
  tensor::DataType type = tensor::DataType::f32;  ///< of activations
};

/// A layer: all that the rest of the library wants to know of it, with the numbers that a
/// description gives (ConvolutionLayer and its like). Immutable; a LayerKind shares it.
///
/// Each kind of layer is one class in one source: in the library's folder layers/, or in a program
/// that uses the library (examples/own_layer.cpp). A kind needs a text, a shape and a kernel; what
/// has a default here suits a layer that learns nothing, computes each output from the input of the
/// same pixel and channel, and sends nothing.
class RONDO_TRAIN_API LayerType {
 public:
  LayerType() = default;
  LayerType(const LayerType&) = delete;
  LayerType& operator=(const LayerType&) = delete;
  virtual ~LayerType();

  /// The kind and its numbers, as in "convolution 64 k3 s1 p1 bias0 act0": equal for layers that
  /// run the same kernels. Files of measured times use it.
  [[nodiscard]] virtual std::string text() const = 0;
  [[nodiscard]] virtual LayerTraits traits() const noexcept { return {}; }
  /// How many values it reads, or where LayerTraits::several_inputs, how many at least. A residual
  /// has the first one's shape.
  [[nodiscard]] virtual std::size_t inputs() const noexcept { return 1; }

  /// The shape of what it writes, with the n of `input`; throws std::invalid_argument where that
  /// does not fit.
  [[nodiscard]] virtual tensor::Shape output(const tensor::Shape& input) const = 0;
  /// The same of a layer that reads several values, which by default have the same shape.
  [[nodiscard]] virtual tensor::Shape output_of(std::span<const tensor::Shape> inputs) const;
  [[nodiscard]] virtual LayerParameters parameters(const tensor::Shape& /*input*/) const {
    return {};
  }
  /// The tensor library's kernel of this layer.
  [[nodiscard]] virtual KernelSpec spec(const tensor::Shape& /*input*/) const { return {}; }
  /// Multiplications and additions of one pass. A layer without weights counts as 0.
  [[nodiscard]] virtual double flops(const tensor::Shape& input) const;
  /// Weights without a bias; 0 where Weights::none.
  [[nodiscard]] std::int64_t weights(const tensor::Shape& input) const;

  /// The kernel for inputs of shape `input` where nothing is split, never null; see
  /// make_layer_kernel().
  [[nodiscard]] virtual std::unique_ptr<LayerKernel> kernel(tensor::Engine& engine,
                                                            const tensor::Shape& input,
                                                            bool input_gradient,
                                                            KernelPurpose purpose) const = 0;

  /// The same for activations of bf16; null: there is none. By default kernel() where
  /// LayerTraits::any_type.
  [[nodiscard]] virtual std::unique_ptr<LayerKernel> bf16_kernel(tensor::Engine& engine,
                                                                 const tensor::Shape& input,
                                                                 bool input_gradient,
                                                                 KernelPurpose purpose) const;

  // On a grid. A layer with Weights::none reads its input in the layout that it was written in.

  /// The windows through which it sees its input; none: every pixel by itself, or all at once. A
  /// layer that has them overrides grid_kernel(), too, or is LayerTraits::joins_pixels.
  [[nodiscard]] virtual std::optional<Windows> windows() const noexcept { return {}; }
  /// The kernel of this rank's part; see split_kernels.hpp. Made by all ranks together. By default
  /// the unsplit kernel, on this rank's box. Throws std::invalid_argument for a layer with windows
  /// where images are split in space, unless it is overridden.
  [[nodiscard]] virtual std::unique_ptr<LayerKernel> grid_kernel(const KernelContext& context,
                                                                 const NodeLayout& layout,
                                                                 bool input_gradient) const;
  /// By default all that goes with the channels of this rank's boxes. Not asked where the grid cuts
  /// no channels of x and y: there a rank holds all parameters of the layer.
  [[nodiscard]] virtual ParameterSlice slice(const NodeLayout& layout, int rank) const;
  /// An allreduce of n elements over g ranks counts as 2 (g-1) n, an allgather as (g-1) n, a
  /// reduce-scatter likewise.
  [[nodiscard]] virtual LayerTraffic traffic(const NodeLayout& /*layout*/,
                                             bool /*input_gradient*/) const {
    return {};
  }
  /// The memory that grid_kernel() allocates, also for messages. PlannedMemoryTest compares the
  /// two. Where oneDNN has no kernel for a shape, weights count as if they were kept once.
  [[nodiscard]] virtual tensor::KernelMemory memory(const PlannedKernel& /*kernel*/) const {
    return {};
  }
  /// The same layer with a bias and, behind it, an activation: what a batch norm behind it becomes
  /// part of when nothing is trained. None: it cannot be so.
  [[nodiscard]] virtual std::optional<LayerKind> with_bias(tensor::Activation activation) const;

  /// The layer that the busiest of `ranks` ranks computes where channels are split as `grid` says;
  /// `input` becomes what it reads. None: this layer, of fewer channels.
  [[nodiscard]] virtual std::optional<LayerKind> part_by_channel(ChannelGrid grid, int ranks,
                                                                 tensor::Shape& input) const;
};

}  // namespace rondo::train

// Convolutions whose images are split in space: all ranks hold all weights. The halo of x travels
// before forward, that of dy before backward-data. Where channels are split, too, this is what a
// rank computes of the channels that it has gathered (convolution_by_channel.cpp).
//
// A rank computes the outputs that it holds, from its part of x with the halo around it; where that
// pays, it computes the inner rows while the halo travels (InteriorFirst). Backward-weights uses
// the same part of x while the halo of dy travels. Backward-data computes the gradient of the
// rank's own inputs from dy with its halo. Its windows lie otherwise than those of forward, so it
// often is a kernel of its own, which shares the packed weights; where they lie alike, one kernel
// does both.
//
// A rank without outputs still holds inputs, and the other way round; such ranks take part in the
// exchanges all the same.

#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include <rondo/tensor/convolution.hpp>
#include <rondo/tensor/elementwise.hpp>

#include "grid/exchange.hpp"
#include "grid/local_windows.hpp"
#include "layers/interior_first.hpp"
#include "layers/kernel_memories.hpp"
#include "layers/split_kernels.hpp"

namespace rondo::train {
namespace {

/// One rank's part of a convolution whose images are split in space.
struct SpaceGeometry {
  SpaceGeometry(const ConvolutionLayer& layer, const NodeLayout& layout, int rank,
                tensor::DataType activations);

  /// The spec of the kernel for forward and backward-weights, without a gradient of the input;
  /// where this rank has an output.
  [[nodiscard]] tensor::ConvolutionSpec forward_spec(const ConvolutionLayer& layer) const;
  /// The spec of the kernel for backward-data alone, where some input has a gradient.
  [[nodiscard]] tensor::ConvolutionSpec data_spec(const ConvolutionLayer& layer) const;
  /// Do both compute on the same images, so that one kernel will do?
  [[nodiscard]] bool has_one_kernel(const ConvolutionLayer& layer) const;

  tensor::DataType type;
  Windows windows;
  Box x;
  std::int64_t height;  ///< of whole images
  Halo forward;
  Halo backward;
  LocalWindows forward_local;
  LocalWindows backward_local;
  Box reads;    ///< of x, by forward and backward-weights
  Box reached;  ///< of dx: the rest is zero
};

SpaceGeometry::SpaceGeometry(const ConvolutionLayer& layer, const NodeLayout& layout, int rank,
                             tensor::DataType activations)
    : type(activations),
      windows(windows_of(layer)),
      x(layout.x.box_of(rank)),
      height(layout.x.extents().h),
      forward(forward_halo(layout.x, layout.y, windows, rank)),
      backward(backward_halo(layout.x, layout.y, windows, rank)),
      forward_local(forward_windows(forward, windows, x)),
      reads(forward_local.inputs_of(x)) {
  if (backward.needed.empty()) return;
  backward_local = backward_windows(backward, windows);
  reached = backward_local.inputs_of(x);
}

tensor::ConvolutionSpec SpaceGeometry::forward_spec(const ConvolutionLayer& layer) const {
  // Padding is left at the borders of the image alone; inside, the halo stands in its place.
  auto spec = within(spec_of(layer, reads.shape()), forward_local);
  spec.type = type;
  spec.input_gradient = tensor::InputGradient::unused;
  return spec;
}

tensor::ConvolutionSpec SpaceGeometry::data_spec(const ConvolutionLayer& layer) const {
  auto spec = within(spec_of(layer, reached.shape()), backward_local);
  spec.type = type;
  spec.bias = false;
  spec.activation = tensor::Activation::none;
  spec.weight_gradient = tensor::WeightGradient::unused;
  return spec;
}

bool SpaceGeometry::has_one_kernel(const ConvolutionLayer& layer) const {
  if (forward.own.empty() || reached.empty()) return false;
  const auto a = forward_spec(layer);
  const auto b = data_spec(layer);
  return a.input == b.input && a.pad_top == b.pad_top && a.pad_bottom == b.pad_bottom &&
         a.pad_left == b.pad_left && a.pad_right == b.pad_right;
}

class ConvolutionInSpace final : public OneForwardKernel {
 public:
  ConvolutionInSpace(const KernelContext& context, const ConvolutionLayer& layer,
                     const NodeLayout& layout, bool input_gradient)
      : ConvolutionInSpace(
            context, layer, layout, input_gradient,
            SpaceGeometry(layer, layout, context.communicators.rank(), context.type)) {}

  void load(std::span<const float> parameters) override {
    std::optional<tensor::Convolution>& any = forward_ ? forward_ : data_;
    if (any) any->pack_weights(parameters.first(weights_));  // all share their weights
  }

  /// The halo of dy travels meanwhile.
  void backward_parameters(const BackwardOperands& operands) override {
    const bool relu = forward_ && forward_->spec().activation == tensor::Activation::relu;
    if (relu) tensor::backward_relu(engine_, operands.y, operands.dy);
    if (dy_) dy_->start(operands.dy);
    if (!forward_) {
      std::ranges::fill(operands.gradients, 0.0F);
      return;
    }
    // Forward has left x with its halo in a copy, which backward uses again.
    const tensor::ConstAnyView x = x_.reads_own() ? operands.x : x_.read();
    forward_->backward_weights(x, operands.dy, operands.gradients.subspan(weights_));
    forward_->unpack_gradients(operands.gradients.first(weights_));
  }

  void backward_input(const BackwardOperands& operands) override {
    if (!dy_) return;
    const tensor::ConstAnyView dy = dy_->finish();
    // With a stride some inputs at the end are read by no window: their gradient is zero, and the
    // kernel's result is smaller than dx.
    if (reached_ == own_) {
      if (!own_.empty()) data_kernel_->backward_data(dy, operands.dx);
      return;
    }
    clear(operands.dx);
    if (reached_.empty()) return;
    data_kernel_->backward_data(dy, reached_dx_.view());
    copy_box(reached_, {reached_dx_.data(), reached_, reached_dx_.type()},
             {operands.dx.data, own_, operands.dx.type});
  }

  [[nodiscard]] std::string implementation() const override {
    std::string names = forward_ ? forward_->implementation() : std::string();
    if (data_) names += (names.empty() ? "" : "; dx: ") + data_->implementation();
    return names;
  }

 private:
  ConvolutionInSpace(const KernelContext& context, const ConvolutionLayer& layer,
                     const NodeLayout& layout, bool input_gradient, const SpaceGeometry& geometry)
      : engine_(context.engine),
        weights_(static_cast<std::size_t>(spec_of(layer, geometry.x.shape()).weights())),
        own_(geometry.x),
        reached_(geometry.reached),
        x_(context, layout.x, forward_needs(layout.x, layout.y, geometry.windows), geometry.reads) {
    if (!geometry.forward.own.empty()) {
      make_forward(layer, geometry, input_gradient, context.trains());
    }
    if (!input_gradient) return;
    dy_.emplace(context, layout.y, backward_needs(layout.x, layout.y, geometry.windows),
                geometry.backward.needed);
    if (!reached_.empty()) make_data(layer, geometry);
  }

  void make_forward(const ConvolutionLayer& layer, const SpaceGeometry& geometry,
                    bool input_gradient, bool trains) {
    auto spec = geometry.forward_spec(layer);
    if (input_gradient && geometry.has_one_kernel(layer)) {
      spec.input_gradient = tensor::InputGradient::wanted;
    }
    if (!trains) spec.weight_gradient = tensor::WeightGradient::unused;
    forward_.emplace(engine_, spec);
    if (!InteriorFirst::pays(geometry.forward, geometry.x, geometry.reads, spec.weights())) return;
    interior_first_.emplace(*forward_, geometry.forward, geometry.windows, geometry.height,
                            geometry.x, geometry.reads);
  }

  void make_data(const ConvolutionLayer& layer, const SpaceGeometry& geometry) {
    if (reached_ != own_) {
      reached_dx_ = tensor::AnyTensor(reached_.shape(), geometry.type, engine_.layer_memory());
    }
    if (forward_ && forward_->spec().input_gradient == tensor::InputGradient::wanted) {
      data_kernel_ = &*forward_;
      return;
    }
    const auto spec = geometry.data_spec(layer);
    data_kernel_ = forward_ ? &data_.emplace(*forward_, spec) : &data_.emplace(engine_, spec);
  }

  void forward(const ForwardOperands& operands) override {
    x_.start(operands.x);
    const auto bias = operands.parameters.subspan(weights_);
    if (interior_first_) {
      // The messages of the halo are on their way; finish() completes them.
      interior_first_->inner(operands.x, bias, operands.y);
    }
    const auto x = x_.finish();
    if (interior_first_) {
      interior_first_->border(x, bias, operands.y);
    } else if (forward_) {
      forward_->forward(x, bias, operands.y);
    }
  }

  tensor::Engine& engine_;
  std::size_t weights_;
  Box own_;      ///< of dx
  Box reached_;  ///< of that, what an output reaches
  NeededPart x_;
  std::optional<NeededPart> dy_;                 ///< none: no gradient of x is wanted
  std::optional<tensor::Convolution> forward_;   ///< and backward-weights; none: no output is ours
  std::optional<InteriorFirst> interior_first_;  ///< forward instead, where that pays
  std::optional<tensor::Convolution> data_;      ///< none: forward_ does it, or nobody
  tensor::Convolution* data_kernel_ = nullptr;   ///< the one that does it
  tensor::AnyTensor reached_dx_;                 ///< where that is not all of dx
};

// It shares its weights with the forward kernel, and its own forward is never run, but made.
tensor::KernelMemory memory_of_data_kernel(const ConvolutionLayer& layer,
                                           const SpaceGeometry& geometry, KernelMemories& kernels) {
  tensor::ConvolutionSpec spec = geometry.data_spec(layer);
  tensor::KernelMemory memory = kernels.of(spec);
  spec.input_gradient = tensor::InputGradient::unused;
  if (!geometry.forward.own.empty()) memory.own -= kernels.of(spec).own;
  return memory;
}

}  // namespace

std::unique_ptr<LayerKernel> make_convolution_in_space(const KernelContext& context,
                                                       const ConvolutionLayer& layer,
                                                       const NodeLayout& layout,
                                                       bool input_gradient) {
  if (layout.split.kind == SplitKind::space) {
    if (layer.padding >= layer.kernel) {
      throw std::invalid_argument("a convolution split in space needs less padding (" +
                                  std::to_string(layer.padding) + ") than its kernel is wide (" +
                                  std::to_string(layer.kernel) + ")");
    }
    return std::make_unique<ConvolutionInSpace>(context, layer, layout, input_gradient);
  }
  return make_layer_kernel(context.engine, layer,
                           layout.x.box_of(context.communicators.rank()).shape(), input_gradient,
                           context.purpose, context.type);
}

// The same decisions as in the constructors above, without making the kernels.
tensor::KernelMemory memory_in_space(const ConvolutionLayer& layer, const PlannedKernel& kernel) {
  const auto& [kernels, layout, rank, data, statistics, type] = kernel;
  const SpaceGeometry geometry(layer, layout, rank, type);
  tensor::KernelMemory memory{
      .own = NeededPart::bytes(layout.x, forward_needs(layout.x, layout.y, geometry.windows),
                               geometry.reads, rank, type)};
  if (data) {
    memory.own += NeededPart::bytes(layout.y, backward_needs(layout.x, layout.y, geometry.windows),
                                    geometry.backward.needed, rank, type);
    if (!geometry.reached.empty() && geometry.reached != geometry.x) {
      memory.own += bytes_of(geometry.reached.size(), type);
    }
  }
  const bool one = data && geometry.has_one_kernel(layer);
  if (!geometry.forward.own.empty()) {
    tensor::ConvolutionSpec spec = geometry.forward_spec(layer);
    if (one) spec.input_gradient = tensor::InputGradient::wanted;
    add_memory(memory, kernels.of(spec));
  }
  if (data && !one && !geometry.reached.empty()) {
    add_memory(memory, memory_of_data_kernel(layer, geometry, kernels));
  }
  return memory;
}

}  // namespace rondo::train

// Pooling: the maximum or the mean of windows, and the mean of whole channels. It learns nothing.
//
// Where images are split in space, windows that cross a cut are computed by the rank that holds
// their output, from x with its halo; backward gives it gradients of the halo, too, which return to
// their owners and are added there. So ties go where the unsplit kernel puts them, and an average
// counts what the unsplit one counts: padding is left at the image's borders alone. For a global
// average the replica adds up the sums over the pixels of each rank.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <memory_resource>
#include <optional>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>

#include <rondo/tensor/pooling.hpp>
#include <rondo/train/redistribution.hpp>
#include <rondo/transport/request.hpp>

#include "grid/local_windows.hpp"
#include "layers/kernel_memories.hpp"
#include "layers/split_kernels.hpp"

namespace rondo::train {
namespace {

tensor::PoolingSpec spec_of(const PoolingLayer& layer, const tensor::Shape& input) {
  return {.input = input,
          .kind = layer.kind,
          .window_h = layer.window,
          .window_w = layer.window,
          .stride = layer.stride,
          .pad_top = layer.padding,
          .pad_bottom = layer.padding,
          .pad_left = layer.padding,
          .pad_right = layer.padding};
}

tensor::PoolingSpec spec_of(const GlobalAveragePoolingLayer& /*layer*/,
                            const tensor::Shape& input) {
  return {.input = input,
          .kind = tensor::PoolingKind::average,
          .window_h = input.h,
          .window_w = input.w,
          .stride = 1};
}

/// Pooling: learns nothing.
class PoolingKernel final : public OneForwardKernel {
 public:
  PoolingKernel(tensor::Engine& engine, const tensor::PoolingSpec& spec) : kernel_(engine, spec) {}

  void backward_parameters(const BackwardOperands& /*operands*/) override {}
  void backward_input(const BackwardOperands& operands) override {
    if (operands.dx.data != nullptr) kernel_.backward(operands.dy, operands.dx);
  }

  [[nodiscard]] std::string implementation() const override { return kernel_.implementation(); }

 private:
  void forward(const ForwardOperands& operands) override {
    kernel_.forward(operands.x, operands.y);
  }

  tensor::Pooling kernel_;
};

// Without training there is no workspace: maxima need not be found again.
std::unique_ptr<LayerKernel> make_whole(tensor::Engine& engine, tensor::PoolingSpec spec,
                                        KernelPurpose purpose,
                                        tensor::DataType type = tensor::DataType::f32) {
  spec.type = type;
  if (purpose != KernelPurpose::training) spec.input_gradient = tensor::InputGradient::unused;
  return std::make_unique<PoolingKernel>(engine, spec);
}

// Pooling of this rank's outputs, from its part of x with the halo around it.
class PoolingInSpace final : public OneForwardKernel {
 public:
  PoolingInSpace(const KernelContext& context, const PoolingLayer& layer, const NodeLayout& layout)
      : PoolingInSpace(
            context, layer, layout,
            forward_halo(layout.x, layout.y, windows_of(layer), context.communicators.rank()),
            forward_needs(layout.x, layout.y, windows_of(layer))) {}

  void backward_parameters(const BackwardOperands& /*operands*/) override {}

  void backward_input(const BackwardOperands& operands) override {
    void* const dx = operands.dx.data;
    if (dx == nullptr) return;
    // Gradients of the halo are computed here and go home; those that come are added to the own
    // ones.
    if (x_.reads_own()) {
      if (kernel_) kernel_->backward(operands.dy, operands.dx);
      home_->start(dx);
    } else {
      if (kernel_) kernel_->backward(operands.dy, gradient_.view());
      clear(operands.dx);
      home_->start(gradient_.data(), dx);
    }
    home_->finish(dx);
  }

  [[nodiscard]] std::string implementation() const override {
    return kernel_ ? kernel_->implementation() : std::string();
  }

 private:
  PoolingInSpace(const KernelContext& context, const PoolingLayer& layer, const NodeLayout& layout,
                 const Halo& halo, const std::vector<Box>& needs)
      : own_(layout.x.box_of(context.communicators.rank())),
        reads_(forward_windows(halo, windows_of(layer), own_).inputs_of(own_)),
        x_(context, layout.x, needs, reads_) {
    if (context.trains()) {
      // Made by ranks without outputs, too: others return gradients to them.
      home_.emplace(context.communicators.all(),
                    halo_return(layout.x, needs, context.communicators.rank()), reads_, own_,
                    context.memory, Arrival::adds, context.type);
    }
    if (halo.own.empty()) return;
    auto spec =
        within(spec_of(layer, reads_.shape()), forward_windows(halo, windows_of(layer), own_));
    spec.type = context.type;
    if (!context.trains()) {
      spec.input_gradient = tensor::InputGradient::unused;
    } else if (!x_.reads_own()) {
      gradient_ = tensor::AnyTensor(reads_.shape(), context.type, context.engine.layer_memory());
    }
    kernel_.emplace(context.engine, spec);
  }

  void forward(const ForwardOperands& operands) override {
    x_.start(operands.x);
    const auto x = x_.finish();
    if (kernel_) kernel_->forward(x, operands.y);
  }

  Box own_;  ///< of x and dx
  Box reads_;
  NeededPart x_;
  std::optional<Exchange> home_;           ///< none: no gradient is wanted
  tensor::AnyTensor gradient_;             ///< of x with its halo
  std::optional<tensor::Pooling> kernel_;  ///< none: no output is ours
};

// Sums of the rank's own pixels, added up over the replica by an allreduce. Where several ranks
// hold the same pixels, one of them counts.
class GlobalAverageInSpace final : public OneForwardKernel {
 public:
  GlobalAverageInSpace(const KernelContext& context, const NodeLayout& layout)
      : own_(layout.x.box_of(context.communicators.rank())),
        channels_(layout.x.extents().c),
        pixels_(static_cast<float>(layout.x.extents().h * layout.x.extents().w)),
        counts_(layout.x.holder_index(context.communicators.rank()) == 0),
        sums_(static_cast<std::size_t>(own_.n.size() * channels_), context.memory),
        // The plan refers to the buffer and is started in every step, so that a step allocates
        // nothing.
        meet_(context.communicators.replica().plan_allreduce(std::span<float>(sums_))) {}

  void backward_parameters(const BackwardOperands& /*operands*/) override {}

  void backward_input(const BackwardOperands& operands) override {
    if (operands.dx.data == nullptr) return;
    tensor::with_type(operands.dx.type, [&]<typename T>(T /*of*/) {
      spread(operands.dy.as<T>().data, operands.dx.as<T>().data);
    });
  }

 private:
  template <typename T>
  void spread(const T* dy, T* dx) const {
    if (own_.empty()) return;
    const std::int64_t channels = own_.c.size();
    dy += own_.c.first;
    for (std::int64_t n = 0; n < own_.n.size(); ++n) {
      for (std::int64_t pixel = 0; pixel < own_.h.size() * own_.w.size(); ++pixel) {
        for (std::int64_t c = 0; c < channels; ++c) {
          dx[c] = tensor::from_float<T>(tensor::to_float(dy[c]) / pixels_);
        }
        dx += channels;
      }
      dy += channels_;
    }
  }

  template <typename T>
  void add_pixels(const T* x) {
    if (own_.empty()) return;
    const std::int64_t channels = own_.c.size();
    float* sums = sums_.data() + own_.c.first;
    for (std::int64_t n = 0; n < own_.n.size(); ++n) {
      for (std::int64_t pixel = 0; pixel < own_.h.size() * own_.w.size(); ++pixel) {
        for (std::int64_t c = 0; c < channels; ++c) sums[c] += tensor::to_float(x[c]);
        x += channels;
      }
      sums += channels_;
    }
  }

  void forward(const ForwardOperands& operands) override {
    std::ranges::fill(sums_, 0.0F);
    tensor::with_type(operands.x.type, [&]<typename T>(T /*of*/) {
      if (counts_) add_pixels(operands.x.as<T>().data);
      meet_.start().wait();
      std::ranges::transform(sums_, operands.y.as<T>().data,
                             [this](float sum) { return tensor::from_float<T>(sum / pixels_); });
    });
  }

  Box own_;                ///< of x
  std::int64_t channels_;  ///< of which the rank may have some
  float pixels_;
  bool counts_;                   ///< its pixels: one of the ranks that hold them does
  std::pmr::vector<float> sums_;  ///< of own pixels, then of all: [n, all channels]
  transport::Plan meet_;
};

// Maximum and average pooling, as the rest of the library sees them.
class Pooling final : public LayerType {
 public:
  explicit Pooling(const PoolingLayer& layer) : layer_(layer) {}

  std::string text() const override {
    return fmt::format("pooling{} k{} s{} p{}", static_cast<int>(layer_.kind), layer_.window,
                       layer_.stride, layer_.padding);
  }

  tensor::Shape output(const tensor::Shape& input) const override {
    check_windows(windows_of(layer_), input);
    if (layer_.padding >= layer_.window) {
      throw std::invalid_argument("its padding must be less than its window");
    }
    return spec_of(layer_, input).output();
  }

  LayerTraits traits() const noexcept override { return {.returns_halo = true}; }
  std::optional<Windows> windows() const noexcept override { return windows_of(layer_); }
  KernelSpec spec(const tensor::Shape& input) const override { return spec_of(layer_, input); }

  std::unique_ptr<LayerKernel> kernel(tensor::Engine& engine, const tensor::Shape& input,
                                      bool /*input_gradient*/,
                                      KernelPurpose purpose) const override {
    return make_whole(engine, spec_of(layer_, input), purpose);
  }

  std::unique_ptr<LayerKernel> bf16_kernel(tensor::Engine& engine, const tensor::Shape& input,
                                           bool /*input_gradient*/,
                                           KernelPurpose purpose) const override {
    return make_whole(engine, spec_of(layer_, input), purpose, tensor::DataType::bf16);
  }

  std::unique_ptr<LayerKernel> grid_kernel(const KernelContext& context, const NodeLayout& layout,
                                           bool /*input_gradient*/) const override {
    return make_pooling_in_space(context, layer_, layout);
  }

  // The gradients of a halo return the way that it came.
  LayerTraffic traffic(const NodeLayout& layout, bool input_gradient) const override {
    const std::uint64_t halo =
        elements_sent(layout.x, forward_needs(layout.x, layout.y, windows_of(layer_)));
    return {halo, input_gradient ? halo : 0};
  }

  tensor::KernelMemory memory(const PlannedKernel& kernel) const override {
    const NodeLayout& layout = kernel.layout;
    const Box x = layout.x.box_of(kernel.rank);
    const auto typed = [&](tensor::PoolingSpec spec) {
      spec.type = kernel.type;
      return kernel.kernels.of(spec);
    };
    if (!layout.in_space()) return typed(spec_of(layer_, x.shape()));
    const Windows windows = windows_of(layer_);
    const Halo halo = forward_halo(layout.x, layout.y, windows, kernel.rank);
    const std::vector<Box> needs = forward_needs(layout.x, layout.y, windows);
    const LocalWindows local = forward_windows(halo, windows, x);
    const Box reads = local.inputs_of(x);
    tensor::KernelMemory memory{
        .own = NeededPart::bytes(layout.x, needs, reads, kernel.rank, kernel.type) +
               Exchange::bytes(halo_return(layout.x, needs, kernel.rank), kernel.type)};
    if (halo.own.empty()) return memory;
    if (reads != x) memory.own += bytes_of(reads.size(), kernel.type);
    add_memory(memory, typed(within(spec_of(layer_, reads.shape()), local)));
    return memory;
  }

 private:
  PoolingLayer layer_;
};

// The mean of every channel: one window as large as the image.
class GlobalAverage final : public LayerType {
 public:
  std::string text() const override { return "average"; }
  LayerTraits traits() const noexcept override { return {.averages_images = true}; }
  tensor::Shape output(const tensor::Shape& input) const override {
    check_windows({.h = {.kernel = input.h}, .w = {.kernel = input.w}}, input);
    return spec_of(GlobalAveragePoolingLayer(), input).output();
  }

  KernelSpec spec(const tensor::Shape& input) const override {
    return spec_of(GlobalAveragePoolingLayer(), input);
  }

  std::unique_ptr<LayerKernel> kernel(tensor::Engine& engine, const tensor::Shape& input,
                                      bool /*input_gradient*/,
                                      KernelPurpose purpose) const override {
    return make_whole(engine, spec_of(GlobalAveragePoolingLayer(), input), purpose);
  }

  std::unique_ptr<LayerKernel> bf16_kernel(tensor::Engine& engine, const tensor::Shape& input,
                                           bool /*input_gradient*/,
                                           KernelPurpose purpose) const override {
    return make_whole(engine, spec_of(GlobalAveragePoolingLayer(), input), purpose,
                      tensor::DataType::bf16);
  }

  std::unique_ptr<LayerKernel> grid_kernel(const KernelContext& context, const NodeLayout& layout,
                                           bool /*input_gradient*/) const override {
    return make_global_average_on_grid(context, layout);
  }

  LayerTraffic traffic(const NodeLayout& layout, bool /*input_gradient*/) const override {
    if (!layout.in_space()) return {};
    const auto others = static_cast<std::uint64_t>(layout.x.ranks() - 1);
    // An allreduce of the sums. Backward sends nothing: every rank has dy, and spreads it over its
    // own pixels.
    const std::uint64_t sums = 2 * others * static_cast<std::uint64_t>(layout.y.extents().size());
    return {.forward = sums, .sums = sums};
  }

  tensor::KernelMemory memory(const PlannedKernel& kernel) const override {
    const Box x = kernel.layout.x.box_of(kernel.rank);
    if (kernel.layout.in_space()) {
      return {.own = float_bytes(x.n.size() * kernel.layout.x.extents().c)};
    }
    tensor::PoolingSpec spec = spec_of(GlobalAveragePoolingLayer(), x.shape());
    spec.type = kernel.type;
    return kernel.kernels.of(spec);
  }
};

// Windows lie side by side unless a stride is given, as in PyTorch.
LayerKind described_pooling(const Experiment::Layer& layer, tensor::PoolingKind kind) {
  return PoolingLayer{.kind = kind,
                      .window = layer.window,
                      .stride = layer.stride == 0 ? layer.window : layer.stride,
                      .padding = layer.padding < 0 ? 0 : layer.padding};
}

}  // namespace

Windows windows_of(const PoolingLayer& layer) noexcept {
  const Window window{.kernel = layer.window,
                      .stride = layer.stride,
                      .before = layer.padding,
                      .after = layer.padding};
  return {window, window};
}

// Where rows and columns are not cut, the rank's box is dense and the unsplit kernel will do.
std::unique_ptr<LayerKernel> make_pooling_in_space(const KernelContext& context,
                                                   const PoolingLayer& layer,
                                                   const NodeLayout& layout) {
  if (layout.x.parts().h * layout.x.parts().w > 1) {
    return std::make_unique<PoolingInSpace>(context, layer, layout);
  }

  const tensor::Shape x = layout.x.box_of(context.communicators.rank()).shape();
  return make_layer_kernel(context.engine, layer, x, true, context.purpose, context.type);
}

// Where images are split, every rank of the replica gets the means: they are the same for all, and
// the fully connected layer behind reads whole images.
std::unique_ptr<LayerKernel> make_global_average_on_grid(const KernelContext& context,
                                                         const NodeLayout& layout) {
  const Parts& parts = layout.x.parts();
  const int rank = context.communicators.rank();
  if (parts.h * parts.w == 1) {
    return make_layer_kernel(context.engine, GlobalAveragePoolingLayer(),
                             layout.x.box_of(rank).shape(), true, context.purpose, context.type);
  }

  const Box x = layout.x.box_of(rank);
  // All ranks of the replica hold the same means of its samples.
  const Box means = {.n = x.n, .h = {0, 1}, .w = {0, 1}, .c = whole(layout.x.extents()).c};
  if (parts.n != context.communicators.grid().pc || layout.y.box_of(rank) != means) {
    throw std::invalid_argument(
        "a global average of images split in space leaves all means of its replica's samples "
        "on every rank; its output must lie so");
  }

  return std::make_unique<GlobalAverageInSpace>(context, layout);
}

std::shared_ptr<const LayerType> make_layer_type(const PoolingLayer& layer) {
  return std::make_shared<Pooling>(layer);
}

std::shared_ptr<const LayerType> make_layer_type(const GlobalAveragePoolingLayer& /*layer*/) {
  return std::make_shared<GlobalAverage>();
}

DescribedKind describe_max_pooling() {
  return {.name = "max_pooling",
          .keys = {"window", "stride", "padding"},
          .make = [](const Experiment::Layer& layer) {
            return described_pooling(layer, tensor::PoolingKind::max);
          }};
}

DescribedKind describe_average_pooling() {
  return {.name = "average_pooling",
          .keys = {"window", "stride", "padding"},
          .make = [](const Experiment::Layer& layer) {
            return described_pooling(layer, tensor::PoolingKind::average);
          }};
}

DescribedKind describe_global_average_pooling() {
  return {.name = "global_average_pooling",
          .make = [](const Experiment::Layer& /*layer*/) -> LayerKind {
            return GlobalAveragePoolingLayer{};
          }};
}

}  // namespace rondo::train

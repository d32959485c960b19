// Convolutions: which oneDNN kernels a spec gets. WeightedLayer runs them.
//
// Activations are nhwc on both sides and oneDNN chooses the layout of the weights: with any other
// mix it falls back to its reference kernels, which are hundreds of times slower. The name of the
// kernel that was chosen is checked for that.

#include <rondo/tensor/convolution.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "amx_weight_gradient.hpp"
#include "direct_weight_gradient.hpp"
#include "onednn_calls.hpp"
#include "onednn_self_test.hpp"
#include "pixel_products.hpp"
#include "weighted_layer.hpp"

namespace rondo::tensor {

using dnnl::algorithm;
using dnnl::memory;
using onednn::Pass;

namespace {

std::string describe(const ConvolutionSpec& spec) {
  const auto text = [](std::int64_t number) { return std::to_string(number); };
  return "Convolution(" + text(spec.input.n) + "x" + text(spec.input.h) + "x" + text(spec.input.w) +
         "x" + text(spec.input.c) + " -> " + text(spec.filters) + " filters " +
         text(spec.kernel_h) + "x" + text(spec.kernel_w) + " stride " + text(spec.stride) +
         (spec.groups == 1 ? "" : " in " + text(spec.groups) + " groups") + ")";
}

void require_possible(const ConvolutionSpec& spec) {
  const auto [n, h, w, c] = spec.input;
  const bool positive = n >= 0 && h > 0 && w > 0 && c > 0 && spec.filters > 0 &&
                        spec.kernel_h > 0 && spec.kernel_w > 0 && spec.stride > 0;
  const bool padded =
      spec.pad_top >= 0 && spec.pad_bottom >= 0 && spec.pad_left >= 0 && spec.pad_right >= 0;
  const bool fits = h + spec.pad_top + spec.pad_bottom >= spec.kernel_h &&
                    w + spec.pad_left + spec.pad_right >= spec.kernel_w;
  if (positive && (spec.groups < 1 || c % spec.groups != 0 || spec.filters % spec.groups != 0)) {
    throw std::invalid_argument(describe(spec) + ": the groups must divide channels and filters");
  }
  if (positive && padded && fits) return;
  throw std::invalid_argument(describe(spec) +
                              ": extents must be positive and the kernel must fit the padded "
                              "image");
}

// The layouts and extents that all three primitives are made from.
struct Descriptions {
  explicit Descriptions(const ConvolutionSpec& spec)
      : x(activation_layout(spec.input, spec.type)),
        y(activation_layout(spec.output(), spec.type)),
        result(activation_layout(spec.output(), spec.output_type())),
        dx(activation_layout(spec.input, spec.input_gradient_type())),
        weights(shape(spec), onednn_type(spec.type), memory::format_tag::any),
        // Gradients of weights are in fp32 whatever the activations are: they go to the flat array
        // of the optimizer.
        weight_gradient(shape(spec), memory::data_type::f32, memory::format_tag::any),
        strides({spec.stride, spec.stride}),
        before({spec.pad_top, spec.pad_left}),
        after({spec.pad_bottom, spec.pad_right}) {
    if (spec.bias) bias = {{spec.filters}, memory::data_type::f32, memory::format_tag::x};
  }
  static memory::dims shape(const ConvolutionSpec& spec) {
    // oneDNN tells a convolution in groups by a fifth dimension of its weights, in front of the
    // others.
    if (spec.groups == 1) return {spec.filters, spec.input.c, spec.kernel_h, spec.kernel_w};
    return {spec.groups, spec.filters / spec.groups, spec.input.c / spec.groups, spec.kernel_h,
            spec.kernel_w};
  }

  memory::desc x, y, result, dx, weights, weight_gradient, bias;
  memory::dims strides, before, after;
};

memory::desc plain_weights(const ConvolutionSpec& spec) {
  using tag = memory::format_tag;
  return {Descriptions::shape(spec), memory::data_type::f32,
          spec.groups == 1 ? tag::oihw : tag::goihw};
}

// Says of an operation for which oneDNN has no sound kernel why, and what to do.
[[noreturn]] void refuse(Pass pass, const ConvolutionSpec& spec) {
  std::string reason = ": none of oneDNN's kernels computes this layer correctly";
  for (const onednn::Defect& defect : onednn::defects()) {
    if (defect.kind == onednn::Defect::Kind::slow) continue;
    if (defect.pass != pass || !defect.concerns(spec)) continue;
    reason = ": oneDNN's kernel " + std::string(defect.kernel) + " " + std::string(defect.effect) +
             "; " + std::string(defect.remedy);
  }
  throw std::runtime_error(describe(spec) + reason);
}

// The first of oneDNN's kernels, from the fastest on, that is sound.
dnnl::convolution_forward::primitive_desc forward_of(const ConvolutionSpec& spec,
                                                     const Descriptions& d, const Engine::Impl& on,
                                                     const dnnl::primitive_attr& attributes) {
  auto kernel = onednn::forward_kernel<dnnl::convolution_forward>(
      {on.cpu(), attributes},
      [&](const auto& desc) { return onednn::is_sound(on, Pass::forward, desc, spec); },
      dnnl::prop_kind::forward_training, algorithm::convolution_direct, d.x, d.weights, d.bias,
      d.result, d.strides, d.before, d.after);
  if (!kernel) refuse(Pass::forward, spec);
  return kernel;
}

// dx[h] sums w[k] dy[h + pad - k], which is a convolution of dy by the filters turned by half a
// turn, with channels and filters exchanged and kernel - 1 - pad as padding.
ConvolutionSpec mirrored(const ConvolutionSpec& spec) {
  return {.input = spec.output(),
          .filters = spec.input.c,
          .kernel_h = spec.kernel_h,
          .kernel_w = spec.kernel_w,
          .pad_top = spec.kernel_h - 1 - spec.pad_top,
          .pad_bottom = spec.kernel_h - 1 - spec.pad_bottom,
          .pad_left = spec.kernel_w - 1 - spec.pad_left,
          .pad_right = spec.kernel_w - 1 - spec.pad_right,
          .type = spec.type,
          .f32_output = spec.f32_input_gradient};
}

bool can_be_mirrored(const ConvolutionSpec& spec) {
  return spec.stride == 1 && spec.groups == 1 &&
         std::max(spec.pad_top, spec.pad_bottom) < spec.kernel_h &&
         std::max(spec.pad_left, spec.pad_right) < spec.kernel_w;
}

// With stride 1 the gradient of the input is a convolution of dy, whose forward kernel is faster
// than oneDNN's backward one in two cases. In fp32 with AVX-512 and kernels larger than 1x1 it is a
// little faster on one thread and 1.3 times as fast on two. In bf16 with AMX it is up to twice as
// fast, as oneDNN 2 has no backward kernel of that family. In bf16 without AMX it is slower: at 16
// channels backward does 355 GFLOP/s, forward 264 (Zen 5).
bool mirrored_is_faster(const ConvolutionSpec& spec) {
  constexpr std::int64_t vector = 16;
  if (std::min(spec.input.c, spec.filters) < vector) return false;
  if (spec.type == DataType::f32) return spec.kernel_h * spec.kernel_w > 1;
  return may_use(dnnl_cpu_isa_avx512_core_amx) && onednn::version().major < 3;
}

// Empty where oneDNN's own backward kernel is taken.
dnnl::primitive_desc_base mirrored_backward_data(const ConvolutionSpec& spec,
                                                 const Engine::Impl& on) {
  if (!can_be_mirrored(spec) || !mirrored_is_faster(spec)) return {};
  const ConvolutionSpec turned = mirrored(spec);
  const auto desc = forward_of(turned, Descriptions(turned), on, scratchpad_attributes());
  // The kernels of this family are those for AVX-512, and for AMX.
  const std::string_view name = desc.impl_info_str();
  const bool expected = spec.type == DataType::f32
                            ? name.starts_with("brgconv:")
                            : name.starts_with("brgconv") && name.ends_with("amx_bf16");
  if (!expected) return {};
  return desc;
}

// As forward_of(). `hint` is the forward kernel.
dnnl::convolution_backward_data::primitive_desc backward_data_of(
    const ConvolutionSpec& spec, const Descriptions& d, const Engine::Impl& on,
    const dnnl::convolution_forward::primitive_desc& hint) {
  auto kernel = onednn::backward_kernel<dnnl::convolution_backward_data>(
      {on.cpu(), scratchpad_attributes()}, hint,
      [&](const auto& desc) { return onednn::is_sound(on, Pass::backward_data, desc, spec); },
      algorithm::convolution_direct, d.dx, d.weights, d.y, d.strides, d.before, d.after);
  if (!kernel) refuse(Pass::backward_data, spec);
  return kernel;
}

// A run that goes on with a damaged heap fails later and elsewhere, so what our plain loops do not
// cover is refused when the layer is made.
std::shared_ptr<const OwnWeightGradient> instead_of_broken_kernel(const ConvolutionSpec& spec) {
  if (spec.bias || spec.groups > 1 || spec.type != DataType::f32) {
    refuse(Pass::backward_weights, spec);
  }
  return std::make_shared<DirectWeightGradient>(spec);
}

// Where oneDNN's kernel is not sound, and all that it has besides is a reference kernel, loops of
// our own compute the gradient.
void choose_backward_weights(LayerKernels& kernels, const ConvolutionSpec& spec,
                             const Descriptions& d, const Engine::Impl& on,
                             const dnnl::convolution_forward::primitive_desc& hint) {
  bool broken = false;
  const auto kernel = onednn::backward_kernel<dnnl::convolution_backward_weights>(
      {on.cpu(), scratchpad_attributes()}, hint,
      [&](const auto& desc) {
        const bool sound = onednn::is_sound(on, Pass::backward_weights, desc, spec);
        broken = broken || !sound;
        return sound;
      },
      algorithm::convolution_direct, d.x, d.weight_gradient, d.bias, d.y, d.strides, d.before,
      d.after);
  if (broken && (!kernel || is_reference(kernel))) {
    kernels.own_backward_weights = instead_of_broken_kernel(spec);
  } else {
    kernels.backward_weights = kernel;
  }
}

// Empty where the CPU or the spec leaves the work to oneDNN.
std::shared_ptr<const OwnWeightGradient> own_weight_gradient(const ConvolutionSpec& spec) {
  if (auto own = AmxWeightGradient::choose(spec)) return own;
  return DirectWeightGradient::choose(spec);
}

bool is_winograd(const ConvolutionSpec& spec, const Engine::Impl& on) {
  return on.convolutions() == ConvolutionAlgorithm::fast && can_be_mirrored(spec) &&
         WinogradConvolution::is_faster(spec);
}

LayerKernels winograd_kernels(const ConvolutionSpec& spec, const Engine::Impl& on) {
  const WinogradLoops& loops = *winograd_loops();
  LayerKernels kernels;
  kernels.own_forward = std::make_shared<WinogradConvolution>(spec, loops, on.threads(), false);
  if (spec.input_gradient == InputGradient::wanted) {
    kernels.own_backward_data =
        std::make_shared<WinogradConvolution>(mirrored(spec), loops, on.threads(), true);
  }
  if (spec.weight_gradient == WeightGradient::wanted) {
    kernels.own_backward_weights =
        std::make_shared<WinogradWeightGradient>(spec, loops, on.threads());
  }
  return kernels;
}

// The backward kernels are asked for with the forward kernel as a hint, and with that of no
// activation: the ReLU's gradient has been taken before they run.
LayerKernels choose_kernels(const ConvolutionSpec& spec, const Engine::Impl& on) {
  if (spec.input.n == 0) return {};
  if (is_winograd(spec, on)) return winograd_kernels(spec, on);
  if (PixelProducts::replaces(spec)) {
    return PixelProducts::kernels(PixelProducts::gathered(spec), on);
  }
  const Descriptions d(spec);
  const auto attributes = scratchpad_attributes();
  // A kernel that the spec does not want stays an empty descriptor, which takes no memory.
  const auto hint = forward_of(spec, d, on, attributes);
  LayerKernels kernels;
  kernels.forward = forward_of(spec, d, on, scratchpad_attributes(spec.activation));
  const bool with_data = spec.input_gradient == InputGradient::wanted;
  if (with_data) kernels.backward_data = mirrored_backward_data(spec, on);
  if (kernels.backward_data) {
    kernels.backward_data_reads = WeightsKind::mirrored;
  } else if (with_data) {
    kernels.backward_data = backward_data_of(spec, d, on, hint);
  }
  if (spec.weight_gradient == WeightGradient::unused) return kernels;
  kernels.own_backward_weights = own_weight_gradient(spec);
  if (kernels.own_backward_weights) return kernels;
  choose_backward_weights(kernels, spec, d, on, hint);
  return kernels;
}

constexpr WeightedKind<ConvolutionSpec> convolution_kind{.name = "Convolution",
                                                         .describe = &describe,
                                                         .require_possible = &require_possible,
                                                         .plain_weights = &plain_weights,
                                                         .choose_kernels = &choose_kernels};

}  // namespace

KernelMemory memory_of(Engine& engine, const ConvolutionSpec& spec) {
  KernelMemory memory = memory_of_layer(engine, convolution_kind, spec);
  if (PixelProducts::replaces(spec)) memory.own += PixelProducts::bytes(spec);
  return memory;
}

class Convolution::Impl {
 public:
  Impl(Engine& engine, const ConvolutionSpec& wanted, std::shared_ptr<PackedWeights> weights)
      : spec(wanted),
        in_padding(onednn::taps_in_padding(wanted)),
        layer(run_kernels(engine, convolution_kind, computed(spec), spec.output_type(),
                          std::move(weights))) {
    if (PixelProducts::replaces(spec)) products.emplace(engine.impl(), spec);
  }

  /// The convolution that the kernels compute.
  static ConvolutionSpec computed(const ConvolutionSpec& spec) {
    return PixelProducts::replaces(spec) ? PixelProducts::gathered(spec) : spec;
  }

  [[nodiscard]] ConstAnyView pixels_of(ConstAnyView x) {
    return products ? products->gather(x) : x;
  }

  void unpack_gradients(std::span<float> oihw) {
    layer.unpack_gradients(oihw);
    const auto window = static_cast<std::size_t>(spec.kernel_h * spec.kernel_w);
    for (const std::size_t tap : in_padding) {
      for (std::size_t i = tap; i < oihw.size(); i += window) oihw[i] = 0.0F;
    }
  }

  ConvolutionSpec spec;
  std::vector<std::size_t> in_padding;
  WeightedLayer layer;
  std::optional<PixelProducts> products;
};

Convolution::Convolution(Engine& engine, const ConvolutionSpec& spec)
    : impl_(make_layer<Impl>(engine, convolution_kind, spec, nullptr)) {}

// Layers that share weights share their packed copies: whoever packs them does so for all.
Convolution::Convolution(Convolution& other, std::int64_t images) {
  ConvolutionSpec spec = other.spec();
  spec.input.n = images;
  impl_ = make_layer<Impl>(other.impl_->layer.engine(), convolution_kind, spec,
                           other.impl_->layer.weights());
}

// A part of the same layer, as the rows of an image that can be computed before its halo has come,
// may have other extents and padding, but not other weights.
Convolution::Convolution(Convolution& other, const ConvolutionSpec& spec) {
  const ConvolutionSpec& has = other.spec();
  if (spec.type != has.type || spec.filters != has.filters || spec.input.c != has.input.c ||
      spec.groups != has.groups || spec.kernel_h != has.kernel_h || spec.kernel_w != has.kernel_w) {
    throw std::invalid_argument(describe(spec) + ": cannot share the weights of " + describe(has));
  }
  impl_ = make_layer<Impl>(other.impl_->layer.engine(), convolution_kind, spec,
                           other.impl_->layer.weights());
}

Convolution::Convolution(Convolution&&) noexcept = default;
Convolution& Convolution::operator=(Convolution&&) noexcept = default;
Convolution::~Convolution() = default;

const ConvolutionSpec& Convolution::spec() const noexcept { return impl_->spec; }

void Convolution::pack_weights(std::span<const float> oihw) { impl_->layer.pack_weights(oihw); }

void Convolution::forward(ConstAnyView x, std::span<const float> bias, AnyView y) {
  impl_->layer.forward(impl_->pixels_of(x), bias, y);
}

void Convolution::backward_data(ConstAnyView dy, AnyView dx) {
  if (!impl_->products) return impl_->layer.backward_data(dy, dx);
  impl_->layer.backward_data(dy, impl_->products->gradient(dx));
  impl_->products->scatter(dx);
}

void Convolution::backward_weights(ConstAnyView x, ConstAnyView dy,
                                   std::span<float> bias_gradient) {
  impl_->layer.backward_weights(impl_->pixels_of(x), dy, bias_gradient);
}

void Convolution::unpack_gradients(std::span<float> oihw) { impl_->unpack_gradients(oihw); }

std::string Convolution::implementation() const { return impl_->layer.implementation(); }

}  // namespace rondo::tensor

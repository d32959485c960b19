// Fully connected layers: which oneDNN kernels a spec gets. WeightedLayer runs them.
//
// The flat parameter array has the inputs in torch's order, with channels slowest; activations have
// channels fastest. Images of several pixels therefore go to oneDNN with four dimensions, so that
// packing the weights puts them into the order of the activations.

#include <rondo/tensor/fully_connected.hpp>

#include <stdexcept>
#include <string>
#include <utility>

#include "onednn_calls.hpp"
#include "onednn_self_test.hpp"
#include "pixel_products.hpp"

namespace rondo::tensor {

using dnnl::memory;

namespace {

constexpr auto f32 = memory::data_type::f32;

bool is_vector(const Shape& shape) { return shape.h == 1 && shape.w == 1; }

// An image of one pixel is the vector of its channels; oneDNN has faster kernels for that.
memory::desc input_layout(const Shape& shape, DataType type) {
  if (!is_vector(shape)) return activation_layout(shape, type);
  return {{shape.n, shape.c}, onednn_type(type), memory::format_tag::nc};
}

// [outputs, C, H, W], or [outputs, C] for vectors, in the order that the kernel likes.
memory::desc weights_layout(const FullyConnectedSpec& spec, memory::data_type type,
                            memory::format_tag vectors = memory::format_tag::any,
                            memory::format_tag images = memory::format_tag::any) {
  const auto [n, h, w, c] = spec.input;
  if (is_vector(spec.input)) return {{spec.outputs, c}, type, vectors};
  return {{spec.outputs, c, h, w}, type, images};
}

// As in the flat array.
memory::desc plain_weights(const FullyConnectedSpec& spec) {
  return weights_layout(spec, f32, memory::format_tag::oi, memory::format_tag::oihw);
}

std::string describe(const FullyConnectedSpec& spec) {
  return "FullyConnected(" + std::to_string(spec.input.n) + "x" +
         std::to_string(spec.input.image()) + " -> " + std::to_string(spec.outputs) + ")";
}

void require_possible(const FullyConnectedSpec& spec) {
  if (spec.input.n >= 0 && spec.input.image() > 0 && spec.outputs > 0) return;
  throw std::invalid_argument(describe(spec) + ": extents must be positive");
}

// The same sums as a convolution by filters as large as the image.
ConvolutionSpec as_convolution(const FullyConnectedSpec& spec, DataType y) {
  return {.input = spec.input,
          .filters = spec.outputs,
          .kernel_h = spec.input.h,
          .kernel_w = spec.input.w,
          .bias = spec.bias,
          .activation = spec.activation,
          .type = spec.type,
          .f32_output = y == DataType::f32,
          .f32_input_gradient = spec.input_gradient_type() == DataType::f32};
}

void require_found(const FullyConnectedSpec& spec, const LayerKernels& kernels) {
  const bool data = spec.input_gradient == InputGradient::unused || kernels.backward_data;
  const bool weights = spec.weight_gradient == WeightGradient::unused || kernels.backward_weights;
  if (kernels.forward && data && weights) return;
  throw std::runtime_error(describe(spec) +
                           ": none of oneDNN's kernels computes this layer correctly");
}

}  // namespace

LayerKernels fully_connected_kernels(const FullyConnectedSpec& spec, DataType y_type,
                                     const Engine::Impl& on) {
  if (spec.input.n == 0) return {};
  const auto type = onednn_type(spec.type);
  const auto x = input_layout(spec.input, spec.type);
  const auto weights = weights_layout(spec, type);
  const auto vectors = [&](DataType of) {
    return memory::desc({spec.input.n, spec.outputs}, onednn_type(of), memory::format_tag::nc);
  };
  const memory::desc dy = vectors(spec.type);
  const auto bias =
      spec.bias ? memory::desc({spec.outputs}, f32, memory::format_tag::x) : memory::desc();
  const auto attributes = scratchpad_attributes();
  const auto with_relu = scratchpad_attributes(spec.activation);
  const auto sound_in = [&](onednn::Pass pass) {
    return [&, pass](const auto& kernel) {
      return onednn::is_sound(on, pass, kernel, as_convolution(spec, y_type));
    };
  };
  const auto forward = [&](const dnnl::primitive_attr& with, const memory::desc& y) {
    return onednn::forward_kernel<dnnl::inner_product_forward>(
        {on.cpu(), with}, sound_in(onednn::Pass::forward), dnnl::prop_kind::forward_training, x,
        weights, bias, y);
  };
  // Backward kernels are asked for with a forward kernel without a ReLU as a hint: the ReLU's
  // gradient is taken before they run.
  const auto hint = forward(attributes, dy);
  LayerKernels kernels;
  kernels.forward = forward(with_relu, vectors(y_type));
  if (spec.input_gradient == InputGradient::wanted) {
    kernels.backward_data = onednn::backward_kernel<dnnl::inner_product_backward_data>(
        {on.cpu(), attributes}, hint, sound_in(onednn::Pass::backward_data),
        input_layout(spec.input, spec.input_gradient_type()), weights, dy);
  }
  if (spec.weight_gradient == WeightGradient::wanted) {
    kernels.backward_weights = onednn::backward_kernel<dnnl::inner_product_backward_weights>(
        {on.cpu(), attributes}, hint, sound_in(onednn::Pass::backward_weights), x,
        // In bf16, too, the gradient of the weights is fp32; its layout is the kernel's choice.
        weights_layout(spec, f32), bias, dy);
  }
  require_found(spec, kernels);
  return kernels;
}

namespace {

LayerKernels choose_kernels(const FullyConnectedSpec& spec, const Engine::Impl& on) {
  return fully_connected_kernels(spec, spec.type, on);
}

constexpr WeightedKind<FullyConnectedSpec> fully_connected_kind{
    .name = "FullyConnected",
    .describe = &describe,
    .require_possible = &require_possible,
    .plain_weights = &plain_weights,
    .choose_kernels = &choose_kernels};

}  // namespace

KernelMemory memory_of(Engine& engine, const FullyConnectedSpec& spec) {
  return memory_of_layer(engine, fully_connected_kind, spec);
}

class FullyConnected::Impl {
 public:
  Impl(Engine& engine, const FullyConnectedSpec& wanted, std::shared_ptr<PackedWeights> weights)
      : spec(wanted),
        layer(run_kernels(engine, fully_connected_kind, spec, spec.type, std::move(weights))) {}

  FullyConnectedSpec spec;
  WeightedLayer layer;
};

FullyConnected::FullyConnected(Engine& engine, const FullyConnectedSpec& spec)
    : impl_(make_layer<Impl>(engine, fully_connected_kind, spec, nullptr)) {}

FullyConnected::FullyConnected(FullyConnected& other, std::int64_t images) {
  FullyConnectedSpec spec = other.spec();
  spec.input.n = images;
  impl_ = make_layer<Impl>(other.impl_->layer.engine(), fully_connected_kind, spec,
                           other.impl_->layer.weights());
}

FullyConnected::FullyConnected(FullyConnected& other, const FullyConnectedSpec& spec) {
  const FullyConnectedSpec& has = other.spec();
  if (spec.type != has.type || spec.outputs != has.outputs ||
      spec.input.with_n(1) != has.input.with_n(1)) {
    throw std::invalid_argument(describe(spec) + ": cannot share the weights of " + describe(has));
  }
  impl_ = make_layer<Impl>(other.impl_->layer.engine(), fully_connected_kind, spec,
                           other.impl_->layer.weights());
}

FullyConnected::FullyConnected(FullyConnected&&) noexcept = default;
FullyConnected& FullyConnected::operator=(FullyConnected&&) noexcept = default;
FullyConnected::~FullyConnected() = default;

const FullyConnectedSpec& FullyConnected::spec() const noexcept { return impl_->spec; }

void FullyConnected::pack_weights(std::span<const float> weights) {
  impl_->layer.pack_weights(weights);
}

void FullyConnected::forward(ConstAnyView x, std::span<const float> bias, AnyView y) {
  impl_->layer.forward(x, bias, y);
}

void FullyConnected::backward_data(ConstAnyView dy, AnyView dx) {
  impl_->layer.backward_data(dy, dx);
}

void FullyConnected::backward_weights(ConstAnyView x, ConstAnyView dy,
                                      std::span<float> bias_gradient) {
  impl_->layer.backward_weights(x, dy, bias_gradient);
}

void FullyConnected::unpack_gradients(std::span<float> weights) {
  impl_->layer.unpack_gradients(weights);
}

std::string FullyConnected::implementation() const { return impl_->layer.implementation(); }

}  // namespace rondo::tensor

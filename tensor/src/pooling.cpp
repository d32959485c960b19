// Pooling by oneDNN. Max pooling writes down where each maximum came from, in a workspace whose
// layout is oneDNN's own; backward reads it. A layer whose input gradient nobody wants asks for the
// inference kernel, which has no workspace.

#include <rondo/tensor/pooling.hpp>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include <rondo/tensor/kernel_memory.hpp>

#include "onednn_calls.hpp"
#include "onednn_kernel.hpp"
#include "onednn_self_test.hpp"

namespace rondo::tensor {

using dnnl::algorithm;
using dnnl::memory;
using dnnl::query;

namespace {

// Padding is smaller than the window, so that no window lies in the padding alone: its average or
// maximum would be that of nothing.
void require_possible(const PoolingSpec& spec) {
  const auto [n, h, w, c] = spec.input;
  const bool positive = n >= 0 && h > 0 && w > 0 && c > 0 && spec.window_h > 0 &&
                        spec.window_w > 0 && spec.stride > 0;
  const bool padded = std::min({spec.pad_top, spec.pad_bottom, spec.pad_left, spec.pad_right}) >= 0;
  const bool filled = std::max(spec.pad_top, spec.pad_bottom) < spec.window_h &&
                      std::max(spec.pad_left, spec.pad_right) < spec.window_w;
  const bool fits = h + spec.pad_top + spec.pad_bottom >= spec.window_h &&
                    w + spec.pad_left + spec.pad_right >= spec.window_w;
  if (positive && padded && filled && fits) return;
  throw std::invalid_argument(
      "Pooling: extents must be positive, the window must fit the padded image and be larger "
      "than the padding (input " +
      std::to_string(h) + "x" + std::to_string(w) + "x" + std::to_string(c) + ", window " +
      std::to_string(spec.window_h) + "x" + std::to_string(spec.window_w) + ")");
}

// As onednn::is_sound(). `backward` may be null.
bool is_sound(const Engine::Impl& on, const PoolingSpec& spec,
              const dnnl::primitive_desc_base& forward, const dnnl::primitive_desc_base* backward) {
  return onednn::tested_once(
      on, backward != nullptr ? *backward : forward,
      {static_cast<std::int64_t>(spec.kind), spec.input.n, spec.input.h, spec.input.w, spec.input.c,
       spec.window_h, spec.window_w, spec.stride, spec.pad_top, spec.pad_bottom, spec.pad_left,
       spec.pad_right, static_cast<std::int64_t>(spec.input_gradient),
       static_cast<std::int64_t>(spec.type), std::int64_t{backward != nullptr}},
      [&] {
        return backward != nullptr ? onednn::computes_correctly(on, forward, *backward, spec)
                                   : onednn::computes_correctly(on, forward, spec);
      });
}

void refuse_without(const dnnl::primitive_desc_base& kernel) {
  if (!kernel)
    throw std::runtime_error("Pooling: no kernel of oneDNN computes this layer correctly");
}

// The kernels that oneDNN chooses for a pooling layer; empty for an empty batch.
struct PoolingKernels {
  PoolingKernels(const PoolingSpec& spec, const Engine::Impl& on) {
    if (spec.input.n == 0) return;
    const auto kind = spec.kind == PoolingKind::max ? algorithm::pooling_max
                                                    : algorithm::pooling_avg_exclude_padding;
    const auto x = activation_layout(spec.input, spec.type);
    const auto y = activation_layout(spec.output(), spec.type);
    const memory::dims strides{spec.stride, spec.stride};
    const memory::dims window{spec.window_h, spec.window_w};
    const memory::dims before{spec.pad_top, spec.pad_left};
    const memory::dims after{spec.pad_bottom, spec.pad_right};
    const bool trains = spec.input_gradient == InputGradient::wanted;
    const memory::dims dilation{0, 0};
    const auto attributes = scratchpad_attributes();
    const onednn::Setting setting{on.cpu(), attributes};
    const auto direction =
        trains ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
    forward = onednn::forward_kernel<onednn::PoolingForward>(
        setting, [&](const auto& kernel) { return is_sound(on, spec, kernel, nullptr); }, direction,
        kind, x, y, strides, window, dilation, before, after);
    refuse_without(forward);
    if (!trains) return;
    backward = onednn::backward_kernel<onednn::PoolingBackward>(
        setting, forward, [&](const auto& kernel) { return is_sound(on, spec, forward, &kernel); },
        kind, x, y, strides, window, dilation, before, after);
    refuse_without(backward);
  }

  onednn::PoolingForward::primitive_desc forward;
  onednn::PoolingBackward::primitive_desc backward;
};

}  // namespace

KernelMemory memory_of(Engine& engine, const PoolingSpec& spec) {
  require_possible(spec);
  engine.impl().enter();
  const Engine::Impl::Forecast forecast(engine.impl());
  try {
    const PoolingKernels kernels(spec, engine.impl());
    if (!kernels.forward) return {};
    KernelMemory memory{.own = kernels.forward.workspace_desc().get_size(),
                        .scratchpad = kernels.forward.scratchpad_desc().get_size()};
    if (kernels.backward) {
      memory.scratchpad =
          std::max(memory.scratchpad, kernels.backward.scratchpad_desc().get_size());
    }
    return memory;
  } catch (const dnnl::error& error) {
    throw std::runtime_error(std::string("Pooling: oneDNN: ") + error.what());
  }
}

class Pooling::Impl {
 public:
  // The workspace is an output of forward and an input of backward.
  Impl(Engine& on, const PoolingSpec& wanted) : spec(wanted), engine(on.impl()) {
    const PoolingKernels kernels(spec, engine);
    if (!kernels.forward) return;
    // An average needs no workspace; only a maximum has to say where it came from.
    implementation = "forward " + checked_name(kernels.forward, "Pooling");
    const auto x = activation_layout(spec.input, spec.type);
    const auto y = activation_layout(spec.output(), spec.type);
    std::vector<OnednnKernel::Argument> down = {{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, y}};
    std::vector<OnednnKernel::Argument> up = {{DNNL_ARG_DIFF_DST, y}, {DNNL_ARG_DIFF_SRC, x}};
    const auto indices = kernels.forward.workspace_desc();
    if (indices.get_size() > 0) {
      maxima_indices = make_zeroed(engine, indices);
      down.push_back({DNNL_ARG_WORKSPACE, indices, maxima_indices.data()});
      up.push_back({DNNL_ARG_WORKSPACE, indices, maxima_indices.data()});
    }
    forward = OnednnKernel(engine, kernels.forward, down);
    if (!kernels.backward) return;
    implementation += ", data " + checked_name(kernels.backward, "Pooling");
    backward = OnednnKernel(engine, kernels.backward, up);
  }

  PoolingSpec spec;
  Engine::Impl& engine;
  std::string implementation = "none (no images)";
  Buffer maxima_indices;
  OnednnKernel forward;
  OnednnKernel backward;
};

Pooling::Pooling(Engine& engine, const PoolingSpec& spec) {
  require_possible(spec);
  require_computable(spec.type);
  engine.impl().enter();
  try {
    impl_ = std::make_unique<Impl>(engine, spec);
  } catch (const dnnl::error& error) {
    throw std::runtime_error(std::string("Pooling: oneDNN: ") + error.what());
  }
}

Pooling::Pooling(Pooling&&) noexcept = default;
Pooling& Pooling::operator=(Pooling&&) noexcept = default;
Pooling::~Pooling() = default;

const PoolingSpec& Pooling::spec() const noexcept { return impl_->spec; }

void Pooling::forward(ConstAnyView x, AnyView y) {
  require_shape("Pooling::forward", "x", x, impl_->spec.input, impl_->spec.type);
  require_shape("Pooling::forward", "y", y, impl_->spec.output(), impl_->spec.type);
  if (impl_->forward) impl_->forward.run(impl_->engine, {x.data, y.data});
}

void Pooling::backward(ConstAnyView dy, AnyView dx) {
  if (impl_->spec.input_gradient == InputGradient::unused) {
    throw std::invalid_argument("Pooling::backward: the layer was made without an input gradient");
  }
  require_shape("Pooling::backward", "dy", dy, impl_->spec.output(), impl_->spec.type);
  require_shape("Pooling::backward", "dx", dx, impl_->spec.input, impl_->spec.type);
  if (impl_->backward) impl_->backward.run(impl_->engine, {dy.data, dx.data});
}

std::string Pooling::implementation() const { return impl_->implementation; }

}  // namespace rondo::tensor

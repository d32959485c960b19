#include <rondo/tensor/pooling.hpp>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "onednn_kernel.hpp"
#include "packed_weights.hpp"
#include "staged.hpp"

namespace rondo::tensor {

using dnnl::algorithm;
using dnnl::memory;
using dnnl::query;

namespace {

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
      "Pooling: extents must be positive, the window must fit the padded picture and be larger "
      "than the padding (input " +
      std::to_string(h) + "x" + std::to_string(w) + "x" + std::to_string(c) + ", window " +
      std::to_string(spec.window_h) + "x" + std::to_string(spec.window_w) + ")");
}

}  // namespace

class Pooling::Impl {
 public:
  Impl(Engine& on, const PoolingSpec& wanted) : spec(wanted), engine(on.impl()) {
    if (spec.input.n == 0) return;
    if (spec.input.n > 1) {
      const auto floats =
          static_cast<std::size_t>(std::max(spec.input.size(), spec.output().size()));
      engine.reserve_staging(0, floats);
      engine.reserve_staging(1, floats);
    }
    make_kernels();
  }

  PoolingSpec spec;
  Engine::Impl& engine;
  std::string implementation = "none (no images)";
  Buffer places_of_maxima;
  OnednnKernel forward;
  OnednnKernel backward;

 private:
  void make_kernels() {
    const auto kind = spec.kind == PoolingKind::max ? algorithm::pooling_max
                                                    : algorithm::pooling_avg_exclude_padding;
    const auto x = activation_layout(spec.input);
    const auto y = activation_layout(spec.output());
    const memory::dims strides{spec.stride, spec.stride};
    const memory::dims window{spec.window_h, spec.window_w};
    const memory::dims before{spec.pad_top, spec.pad_left};
    const memory::dims after{spec.pad_bottom, spec.pad_right};
    const dnnl::pooling_forward::primitive_desc forward_desc(
        {dnnl::prop_kind::forward_training, kind, x, y, strides, window, before, after},
        scratchpad_attributes(), engine.cpu());
    const dnnl::pooling_backward::primitive_desc backward_desc(
        {kind, x, y, strides, window, before, after}, scratchpad_attributes(), engine.cpu(),
        forward_desc);
    implementation = "forward " + checked_name(forward_desc, "Pooling") + ", data " +
                     checked_name(backward_desc, "Pooling");
    std::vector<OnednnKernel::Argument> down = {{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, y}};
    std::vector<OnednnKernel::Argument> up = {{DNNL_ARG_DIFF_DST, y}, {DNNL_ARG_DIFF_SRC, x}};
    const auto places = forward_desc.workspace_desc();
    if (places.get_size() > 0) {
      places_of_maxima = make_zeroed(engine, places);
      down.push_back({DNNL_ARG_WORKSPACE, places, places_of_maxima.data()});
      up.push_back({DNNL_ARG_WORKSPACE, places, places_of_maxima.data()});
    }
    forward = OnednnKernel(engine, forward_desc, down);
    backward = OnednnKernel(engine, backward_desc, up);
  }
};

Pooling::Pooling(Engine& engine, const PoolingSpec& spec) {
  require_possible(spec);
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

void Pooling::forward(View<const float> x, View<float> y) {
  require_shape("Pooling::forward", "x", x, impl_->spec.input);
  require_shape("Pooling::forward", "y", y, impl_->spec.output());
  if (!impl_->forward) return;
  DenseOutput output(impl_->engine, y, 1);
  impl_->forward.run(impl_->engine, {dense_input(impl_->engine, x, 0), output.data()});
  output.finish();
}

void Pooling::backward(View<const float> dy, View<float> dx) {
  require_shape("Pooling::backward", "dy", dy, impl_->spec.output());
  require_shape("Pooling::backward", "dx", dx, impl_->spec.input);
  if (!impl_->backward) return;
  DenseOutput output(impl_->engine, dx, 1);
  impl_->backward.run(impl_->engine, {dense_input(impl_->engine, dy, 0), output.data()});
  output.finish();
}

std::string Pooling::implementation() const { return impl_->implementation; }

}  // namespace rondo::tensor

#include <rondo/tensor/onednn_batch_norm.hpp>

#include <stdexcept>
#include <vector>

#include "onednn_kernel.hpp"
#include "packed_weights.hpp"
#include "staged.hpp"

namespace rondo::tensor {

using dnnl::normalization_flags;
using dnnl::query;

namespace {

normalization_flags flags_of(const BatchNormSpec& spec) {
  const auto learned = normalization_flags::use_scale | normalization_flags::use_shift;
  return spec.activation == Activation::relu ? learned | normalization_flags::fuse_norm_relu
                                             : learned;
}

}  // namespace

class OnednnBatchNorm::Impl {
 public:
  Impl(Engine& on, const BatchNormSpec& wanted) : spec(wanted), engine(on.impl()) {
    const auto x = activation_layout(spec.input);
    const dnnl::batch_normalization_forward::primitive_desc forward_desc(
        {dnnl::prop_kind::forward_training, x, spec.epsilon, flags_of(spec)},
        scratchpad_attributes(), engine.cpu());
    const dnnl::batch_normalization_backward::primitive_desc backward_desc(
        {dnnl::prop_kind::backward, x, x, spec.epsilon, flags_of(spec)}, scratchpad_attributes(),
        engine.cpu(), forward_desc);
    implementation = "forward " + checked_name(forward_desc, "OnednnBatchNorm") + ", backward " +
                     checked_name(backward_desc, "OnednnBatchNorm");
    const auto channels = forward_desc.mean_desc();
    mean = make_zeroed(engine, channels);
    variance = make_zeroed(engine, channels);
    std::vector<OnednnKernel::Argument> down = {{DNNL_ARG_SRC, x},
                                                {DNNL_ARG_SCALE, channels},
                                                {DNNL_ARG_SHIFT, channels},
                                                {DNNL_ARG_DST, x},
                                                {DNNL_ARG_MEAN, channels, mean.data()},
                                                {DNNL_ARG_VARIANCE, channels, variance.data()}};
    std::vector<OnednnKernel::Argument> up = {{DNNL_ARG_SRC, x},
                                              {DNNL_ARG_SCALE, channels},
                                              {DNNL_ARG_SHIFT, channels},
                                              {DNNL_ARG_DIFF_DST, x},
                                              {DNNL_ARG_DIFF_SRC, x},
                                              {DNNL_ARG_DIFF_SCALE, channels},
                                              {DNNL_ARG_DIFF_SHIFT, channels},
                                              {DNNL_ARG_MEAN, channels, mean.data()},
                                              {DNNL_ARG_VARIANCE, channels, variance.data()}};
    const auto signs = forward_desc.workspace_desc();
    if (signs.get_size() > 0) {
      where_positive = make_zeroed(engine, signs);
      down.push_back({DNNL_ARG_WORKSPACE, signs, where_positive.data()});
      up.push_back({DNNL_ARG_WORKSPACE, signs, where_positive.data()});
    }
    forward = OnednnKernel(engine, forward_desc, down);
    backward = OnednnKernel(engine, backward_desc, up);
  }

  BatchNormSpec spec;
  Engine::Impl& engine;
  std::string implementation;
  Buffer mean;
  Buffer variance;
  Buffer where_positive;
  OnednnKernel forward;
  OnednnKernel backward;
};

OnednnBatchNorm::OnednnBatchNorm(Engine& engine, const BatchNormSpec& spec) {
  if (spec.residual || spec.input.size() == 0) {
    throw std::invalid_argument("OnednnBatchNorm: takes no residual and no empty batch");
  }
  engine.impl().enter();
  impl_ = std::make_unique<Impl>(engine, spec);
}

OnednnBatchNorm::OnednnBatchNorm(OnednnBatchNorm&&) noexcept = default;
OnednnBatchNorm& OnednnBatchNorm::operator=(OnednnBatchNorm&&) noexcept = default;
OnednnBatchNorm::~OnednnBatchNorm() = default;

void OnednnBatchNorm::forward(View<const float> x, BatchNormParameters p, View<float> y) {
  require_shape("OnednnBatchNorm::forward", "x", x, impl_->spec.input);
  require_shape("OnednnBatchNorm::forward", "y", y, impl_->spec.input);
  impl_->forward.run(impl_->engine, {x.data, p.scale.data(), p.shift.data(), y.data});
}

void OnednnBatchNorm::backward(View<const float> x, BatchNormParameters p, View<const float> dy,
                               View<float> dx, std::span<float> scale_gradient,
                               std::span<float> shift_gradient) {
  require_shape("OnednnBatchNorm::backward", "dy", dy, impl_->spec.input);
  require_shape("OnednnBatchNorm::backward", "dx", dx, impl_->spec.input);
  impl_->backward.run(impl_->engine, {x.data, p.scale.data(), p.shift.data(), dy.data, dx.data,
                                      scale_gradient.data(), shift_gradient.data()});
}

std::string OnednnBatchNorm::implementation() const { return impl_->implementation; }

}  // namespace rondo::tensor

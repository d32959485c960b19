#include <rondo/tensor/batch_norm.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "batch_norm_impl.hpp"
#include "staged.hpp"

namespace rondo::tensor {
namespace {

constexpr const char* forward_call = "BatchNorm::forward";
constexpr const char* backward_call = "BatchNorm::backward";

void require_channels(const char* call, const char* what, std::size_t size, const Shape& shape) {
  if (static_cast<std::int64_t>(size) == shape.c) return;
  throw std::invalid_argument(std::string(call) + ": " + what + " has " + std::to_string(size) +
                              " elements for " + std::to_string(shape.c) + " channels");
}

// x may have fewer images than the layer was made for.
Shape required_shape(const BatchNormSpec& spec, const View<const float>& x, const char* call) {
  const Shape shape = spec.input.with_n(std::min(x.shape.n, spec.input.n));
  require_shape(call, "x", x, shape);
  return shape;
}

void require_forward(const BatchNormSpec& spec, const View<const float>& x,
                     const View<const float>& residual, const BatchNormParameters& p,
                     std::size_t means, std::size_t variances, const View<float>& y) {
  const Shape shape = required_shape(spec, x, forward_call);
  require_shape(forward_call, "y", y, shape);
  if (spec.residual) {
    require_shape(forward_call, "residual", residual, shape);
  } else if (residual.data != nullptr) {
    throw std::invalid_argument("BatchNorm::forward: a residual, but the spec has none");
  }
  require_channels(forward_call, "scale", p.scale.size(), shape);
  require_channels(forward_call, "shift", p.shift.size(), shape);
  require_channels(forward_call, "the running mean", means, shape);
  require_channels(forward_call, "the running variance", variances, shape);
}

}  // namespace

BatchNorm::BatchNorm(Engine& engine, const BatchNormSpec& spec, SumOverRanks sum_over_ranks) {
  const auto [n, h, w, c] = spec.input;
  if (n < 0 || h <= 0 || w <= 0 || c <= 0) {
    throw std::invalid_argument("BatchNorm: the extents of its input must be positive");
  }
  impl_ = std::make_unique<Impl>(engine.impl(), spec, std::move(sum_over_ranks));
}

BatchNorm::BatchNorm(BatchNorm&&) noexcept = default;
BatchNorm& BatchNorm::operator=(BatchNorm&&) noexcept = default;
BatchNorm::~BatchNorm() = default;

const BatchNormSpec& BatchNorm::spec() const noexcept { return impl_->spec(); }

void BatchNorm::forward_training(View<const float> x, View<const float> residual,
                                 BatchNormParameters p, std::span<float> running_mean,
                                 std::span<float> running_variance, View<float> y) {
  require_forward(spec(), x, residual, p, running_mean.size(), running_variance.size(), y);
  if (x.shape.n == 0 && !impl_->shares()) return;
  impl_->measure(x, p);
  impl_->update_running(running_mean, running_variance);
  impl_->normalise(impl_->batch(), x, residual, y);
}

void BatchNorm::forward_inference(View<const float> x, View<const float> residual,
                                  BatchNormParameters p, std::span<const float> running_mean,
                                  std::span<const float> running_variance, View<float> y) {
  require_forward(spec(), x, residual, p, running_mean.size(), running_variance.size(), y);
  if (x.shape.n == 0) return;
  impl_->adopt_running(running_mean, running_variance, p);
  impl_->normalise(impl_->running(), x, residual, y);
}

void BatchNorm::backward(View<const float> x, View<const float> y, BatchNormParameters p,
                         View<float> dy, View<float> dx, std::span<float> scale_gradient,
                         std::span<float> shift_gradient, View<const float> also) {
  const Shape shape = required_shape(spec(), x, backward_call);
  require_shape(backward_call, "y", y, shape);
  require_shape(backward_call, "dy", dy, shape);
  require_shape(backward_call, "dx", dx, shape);
  if (also.data != nullptr) require_shape(backward_call, "also", also, shape);
  require_channels(backward_call, "scale", p.scale.size(), shape);
  require_channels(backward_call, "scale_gradient", scale_gradient.size(), shape);
  require_channels(backward_call, "shift_gradient", shift_gradient.size(), shape);
  if (shape.n == 0 && !impl_->shares()) {
    std::ranges::fill(scale_gradient, 0.0F);
    std::ranges::fill(shift_gradient, 0.0F);
    return;
  }
  impl_->sum_gradients(x, y, dy, also, scale_gradient, shift_gradient);
  impl_->input_gradients(x, dy, dx);
}

}  // namespace rondo::tensor

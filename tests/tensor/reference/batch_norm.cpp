// Batch normalisation as its formulas, in double and on xtensor's expressions.

#include "reference/batch_norm.hpp"

#include <algorithm>
#include <array>

#include <xtensor/xadapt.hpp>
#include <xtensor/xmath.hpp>
#include <xtensor/xtensor.hpp>

#include <rondo/tensor/xview.hpp>

namespace rondo::tensor::reference {
namespace {

using Values = xt::xtensor<double, 4>;
using Channels = xt::xtensor<double, 1>;

Values values_of(const Tensor& tensor) { return xt::cast<double>(xview(tensor)); }

template <typename Range>
Channels channels_of(const Range& range) {
  Channels channels(std::array<std::size_t, 1>{range.size()});
  std::copy(range.begin(), range.end(), channels.begin());
  return channels;
}

template <typename Number>
std::vector<Number> vector_of(const Channels& channels) {
  return {channels.begin(), channels.end()};
}

Channels over_pixels(const Values& values) { return xt::sum(values, {0, 1, 2}); }

Tensor tensor_of(const Shape& shape, const Values& values) {
  Tensor tensor(shape);
  xview(tensor) = xt::cast<float>(values);
  return tensor;
}

double pixels_of(const Shape& shape) { return static_cast<double>(shape.n * shape.h * shape.w); }

Channels inverse_deviation(const BatchNormSpec& spec, const Moments& by) {
  return 1.0 / xt::sqrt(channels_of(by.variance) + static_cast<double>(spec.epsilon));
}

}  // namespace

Moments moments(const Tensor& x) {
  const Values values = values_of(x);
  const Channels mean = over_pixels(values) / pixels_of(x.shape());
  const Channels variance = over_pixels(xt::square(values - mean)) / pixels_of(x.shape());
  return {vector_of<double>(mean), vector_of<double>(variance)};
}

Tensor batch_norm(const BatchNormSpec& spec, const Tensor& x, const Tensor& residual,
                  BatchNormParameters p, const Moments& by) {
  const Values normalised = (values_of(x) - channels_of(by.mean)) * inverse_deviation(spec, by);
  Values y = normalised * channels_of(p.scale) + channels_of(p.shift);
  if (spec.residual) y += values_of(residual);
  if (spec.activation == Activation::relu) y = xt::maximum(y, 0.0);
  return tensor_of(x.shape(), y);
}

BatchNormGradients batch_norm_backward(const BatchNormSpec& spec, const Tensor& x, const Tensor& y,
                                       BatchNormParameters p, const Tensor& dy) {
  const Moments by = moments(x);
  const double pixels = pixels_of(x.shape());
  const Channels inverse = inverse_deviation(spec, by);
  const Values normalised = (values_of(x) - channels_of(by.mean)) * inverse;
  Values gradient = values_of(dy);
  if (spec.activation == Activation::relu) gradient *= xt::cast<double>(values_of(y) > 0.0);
  const Channels shift = over_pixels(gradient);
  const Channels scale = over_pixels(gradient * normalised);
  const Channels factor = channels_of(p.scale) * inverse;
  const Values dx = factor * (gradient - shift / pixels - normalised * scale / pixels);
  return {tensor_of(x.shape(), gradient), tensor_of(x.shape(), dx), vector_of<float>(scale),
          vector_of<float>(shift)};
}

}  // namespace rondo::tensor::reference

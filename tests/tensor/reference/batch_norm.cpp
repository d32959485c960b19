#include "reference/batch_norm.hpp"

#include <cmath>

namespace rondo::tensor::reference {
namespace {

double at(const Tensor& tensor, std::size_t i) { return static_cast<double>(tensor.span()[i]); }

double inverse_deviation(const BatchNormSpec& spec, const Moments& by, std::size_t c) {
  return 1.0 / std::sqrt(by.variance[c] + static_cast<double>(spec.epsilon));
}

}  // namespace

Moments moments(const Tensor& x) {
  const auto channels = static_cast<std::size_t>(x.shape().c);
  const double samples = static_cast<double>(x.span().size()) / static_cast<double>(channels);
  Moments result{std::vector<double>(channels, 0.0), std::vector<double>(channels, 0.0)};
  for (std::size_t i = 0; i < x.span().size(); ++i) {
    result.mean[i % channels] += at(x, i) / samples;
  }
  for (std::size_t i = 0; i < x.span().size(); ++i) {
    const double distance = at(x, i) - result.mean[i % channels];
    result.variance[i % channels] += distance * distance / samples;
  }
  return result;
}

Tensor batch_norm(const BatchNormSpec& spec, const Tensor& x, const Tensor& residual,
                  BatchNormParameters p, const Moments& by) {
  Tensor y(x.shape());
  for (std::size_t i = 0; i < x.span().size(); ++i) {
    const std::size_t c = i % by.mean.size();
    double value =
        (at(x, i) - by.mean[c]) * inverse_deviation(spec, by, c) * static_cast<double>(p.scale[c]) +
        static_cast<double>(p.shift[c]);
    if (spec.residual) value += at(residual, i);
    if (spec.activation == Activation::relu && value < 0.0) value = 0.0;
    y.span()[i] = static_cast<float>(value);
  }
  return y;
}

BatchNormGradients batch_norm_backward(const BatchNormSpec& spec, const Tensor& x, const Tensor& y,
                                       BatchNormParameters p, const Tensor& dy) {
  const auto channels = static_cast<std::size_t>(x.shape().c);
  const double samples = static_cast<double>(x.span().size()) / static_cast<double>(channels);
  const Moments by = moments(x);
  std::vector<double> sums(channels, 0.0);
  std::vector<double> products(channels, 0.0);
  BatchNormGradients result{Tensor(x.shape()), Tensor(x.shape()), {}, {}};
  for (std::size_t i = 0; i < x.span().size(); ++i) {
    const std::size_t c = i % channels;
    const bool open = spec.activation == Activation::none || at(y, i) > 0.0;
    const double gradient = open ? at(dy, i) : 0.0;
    result.residual.span()[i] = static_cast<float>(gradient);
    sums[c] += gradient;
    products[c] += gradient * (at(x, i) - by.mean[c]) * inverse_deviation(spec, by, c);
  }
  for (std::size_t i = 0; i < x.span().size(); ++i) {
    const std::size_t c = i % channels;
    const double inverse = inverse_deviation(spec, by, c);
    const double normalised = (at(x, i) - by.mean[c]) * inverse;
    result.x.span()[i] = static_cast<float>(
        static_cast<double>(p.scale[c]) * inverse *
        (at(result.residual, i) - sums[c] / samples - normalised * products[c] / samples));
  }
  result.scale.assign(products.begin(), products.end());
  result.shift.assign(sums.begin(), sums.end());
  return result;
}

}  // namespace rondo::tensor::reference

// The kernels' results, computed as their definitions say.

#include "reference.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <rondo/tensor/xview.hpp>

#include "support/xtensor.hpp"

namespace rondo::tensor::reference {
namespace {

// Where element (n, h, w, c) lies in a dense tensor.
constexpr std::size_t offset(const Shape& shape, std::int64_t n, std::int64_t h, std::int64_t w,
                             std::int64_t c) {
  return static_cast<std::size_t>(((n * shape.h + h) * shape.w + w) * shape.c + c);
}

template <typename Use>
void for_each_element(const Shape& shape, const Use& use) {
  for (std::int64_t n = 0; n < shape.n; ++n) {
    for (std::int64_t h = 0; h < shape.h; ++h) {
      for (std::int64_t w = 0; w < shape.w; ++w) {
        for (std::int64_t c = 0; c < shape.c; ++c) use(n, h, w, c);
      }
    }
  }
}

Tensor to_tensor(const Shape& shape, const std::vector<double>& values) {
  Tensor tensor(shape);
  for (std::size_t i = 0; i < values.size(); ++i) tensor.span()[i] = static_cast<float>(values[i]);
  return tensor;
}

// One product of a convolution: output (n, oh, ow, f) takes input (n, ih, iw, c) times weight w.
struct Term {
  std::int64_t n, oh, ow, f, ih, iw, c;
  std::size_t w;
};

template <typename Use>
void for_each_term(const ConvolutionSpec& spec, const Use& use) {
  const Shape out = spec.output();
  const std::int64_t channels = spec.input.c / spec.groups;  // that a filter reads
  const auto group_of = [&](std::int64_t f) { return f / (spec.filters / spec.groups); };
  for_each_element(out, [&](std::int64_t n, std::int64_t oh, std::int64_t ow, std::int64_t f) {
    for (std::int64_t kh = 0; kh < spec.kernel_h; ++kh) {
      for (std::int64_t kw = 0; kw < spec.kernel_w; ++kw) {
        const std::int64_t ih = oh * spec.stride + kh - spec.pad_top;
        const std::int64_t iw = ow * spec.stride + kw - spec.pad_left;
        if (ih < 0 || ih >= spec.input.h || iw < 0 || iw >= spec.input.w) continue;
        for (std::int64_t c = 0; c < channels; ++c) {
          const auto w = ((f * channels + c) * spec.kernel_h + kh) * spec.kernel_w + kw;
          use(Term{n, oh, ow, f, ih, iw, group_of(f) * channels + c, static_cast<std::size_t>(w)});
        }
      }
    }
  });
}

}  // namespace

Tensor convolution(const ConvolutionSpec& spec, const Tensor& x, const std::vector<float>& weights,
                   const std::vector<float>& bias) {
  const Shape out = spec.output();
  std::vector<double> sums(static_cast<std::size_t>(out.size()), 0.0);
  for (std::size_t i = 0; i < sums.size() && !bias.empty(); ++i) sums[i] = bias[i % bias.size()];
  for_each_term(spec, [&](const Term& t) {
    sums[offset(out, t.n, t.oh, t.ow, t.f)] +=
        static_cast<double>(x.span()[offset(spec.input, t.n, t.ih, t.iw, t.c)]) *
        static_cast<double>(weights[t.w]);
  });
  if (spec.activation == Activation::relu) {
    for (double& sum : sums) sum = sum < 0.0 ? 0.0 : sum;
  }
  return to_tensor(out, sums);
}

Tensor convolution_backward_data(const ConvolutionSpec& spec, const Tensor& dy,
                                 const std::vector<float>& weights) {
  std::vector<double> sums(static_cast<std::size_t>(spec.input.size()), 0.0);
  for_each_term(spec, [&](const Term& t) {
    sums[offset(spec.input, t.n, t.ih, t.iw, t.c)] +=
        static_cast<double>(dy.span()[offset(spec.output(), t.n, t.oh, t.ow, t.f)]) *
        static_cast<double>(weights[t.w]);
  });
  return to_tensor(spec.input, sums);
}

std::vector<float> convolution_backward_weights(const ConvolutionSpec& spec, const Tensor& x,
                                                const Tensor& dy) {
  std::vector<double> sums(static_cast<std::size_t>(spec.weights()), 0.0);
  for_each_term(spec, [&](const Term& t) {
    sums[t.w] += static_cast<double>(x.span()[offset(spec.input, t.n, t.ih, t.iw, t.c)]) *
                 static_cast<double>(dy.span()[offset(spec.output(), t.n, t.oh, t.ow, t.f)]);
  });
  return {sums.begin(), sums.end()};
}

std::vector<float> bias_gradient(const Tensor& dy) {
  std::vector<double> sums(static_cast<std::size_t>(dy.shape().c), 0.0);
  for (std::size_t i = 0; i < dy.span().size(); ++i) {
    sums[i % sums.size()] += static_cast<double>(dy.span()[i]);
  }
  return {sums.begin(), sums.end()};
}

namespace {

ConvolutionSpec as_convolution(const FullyConnectedSpec& spec) {
  return {.input = spec.input,
          .filters = spec.outputs,
          .kernel_h = spec.input.h,
          .kernel_w = spec.input.w,
          .bias = spec.bias,
          .activation = spec.activation};
}

}  // namespace

Tensor fully_connected(const FullyConnectedSpec& spec, const Tensor& x,
                       const std::vector<float>& weights, const std::vector<float>& bias) {
  return convolution(as_convolution(spec), x, weights, bias);
}

Tensor fully_connected_backward_data(const FullyConnectedSpec& spec, const Tensor& dy,
                                     const std::vector<float>& weights) {
  return convolution_backward_data(as_convolution(spec), dy, weights);
}

std::vector<float> fully_connected_backward_weights(const FullyConnectedSpec& spec, const Tensor& x,
                                                    const Tensor& dy) {
  return convolution_backward_weights(as_convolution(spec), x, dy);
}

namespace {

// The elements under the window of output (n, oh, ow, c), without padding.
std::vector<std::size_t> window(const PoolingSpec& spec, std::int64_t n, std::int64_t oh,
                                std::int64_t ow, std::int64_t c) {
  std::vector<std::size_t> elements;
  for (std::int64_t kh = 0; kh < spec.window_h; ++kh) {
    for (std::int64_t kw = 0; kw < spec.window_w; ++kw) {
      const std::int64_t h = oh * spec.stride + kh - spec.pad_top;
      const std::int64_t w = ow * spec.stride + kw - spec.pad_left;
      if (h < 0 || h >= spec.input.h || w < 0 || w >= spec.input.w) continue;
      elements.push_back(offset(spec.input, n, h, w, c));
    }
  }
  return elements;
}

// Calls use(output element, elements under its window).
template <typename Use>
void for_each_window(const PoolingSpec& spec, const Use& use) {
  const Shape out = spec.output();
  for_each_element(out, [&](std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c) {
    use(offset(out, n, h, w, c), window(spec, n, h, w, c));
  });
}

std::size_t largest(const Tensor& x, const std::vector<std::size_t>& elements) {
  return *std::ranges::max_element(elements, {}, [&](std::size_t i) { return x.span()[i]; });
}

}  // namespace

Tensor pooling(const PoolingSpec& spec, const Tensor& x) {
  Tensor y(spec.output());
  for_each_window(spec, [&](std::size_t out, const std::vector<std::size_t>& elements) {
    if (spec.kind == PoolingKind::max) {
      y.span()[out] = x.span()[largest(x, elements)];
      return;
    }
    double sum = 0.0;
    for (const std::size_t i : elements) sum += static_cast<double>(x.span()[i]);
    y.span()[out] = static_cast<float>(sum / static_cast<double>(elements.size()));
  });
  return y;
}

Tensor pooling_backward(const PoolingSpec& spec, const Tensor& x, const Tensor& dy) {
  std::vector<double> sums(x.span().size(), 0.0);
  for_each_window(spec, [&](std::size_t out, const std::vector<std::size_t>& elements) {
    const auto gradient = static_cast<double>(dy.span()[out]);
    if (spec.kind == PoolingKind::max) {
      sums[largest(x, elements)] += gradient;
      return;
    }
    for (const std::size_t i : elements) sums[i] += gradient / static_cast<double>(elements.size());
  });
  return to_tensor(spec.input, sums);
}

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

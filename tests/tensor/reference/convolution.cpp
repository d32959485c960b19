#include "reference/convolution.hpp"

#include "reference/element.hpp"

namespace rondo::tensor::reference {
namespace {

// One product of a convolution: output (n, oh, ow, f) takes input (n, ih, iw, c) times weight w.
struct Term {
  std::int64_t n, oh, ow, f, ih, iw, c;
  std::size_t w;
};

template <typename Use>
void for_each_term(const ConvolutionSpec& spec, const Use& use) {
  const Shape out = spec.output();
  for_each_element(out, [&](std::int64_t n, std::int64_t oh, std::int64_t ow, std::int64_t f) {
    for (std::int64_t kh = 0; kh < spec.kernel_h; ++kh) {
      for (std::int64_t kw = 0; kw < spec.kernel_w; ++kw) {
        const std::int64_t ih = oh * spec.stride + kh - spec.pad_top;
        const std::int64_t iw = ow * spec.stride + kw - spec.pad_left;
        if (ih < 0 || ih >= spec.input.h || iw < 0 || iw >= spec.input.w) continue;
        for (std::int64_t c = 0; c < spec.input.c; ++c) {
          const auto w = ((f * spec.input.c + c) * spec.kernel_h + kh) * spec.kernel_w + kw;
          use(Term{n, oh, ow, f, ih, iw, c, static_cast<std::size_t>(w)});
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

}  // namespace rondo::tensor::reference

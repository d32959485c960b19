#include "reference/pooling.hpp"

#include <algorithm>
#include <vector>

#include "reference/element.hpp"

namespace rondo::tensor::reference {
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

}  // namespace rondo::tensor::reference

// A test of oneDNN's pooling kernels, for releases whose kernels nobody has compared with plain
// loops.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>

#include "guarded_array.hpp"
#include "onednn_kernel.hpp"
#include "onednn_self_test.hpp"

namespace rondo::tensor::onednn {
namespace {

using dnnl::memory;

/// The elements of both results by plain loops over windows.
class PlainPooling {
 public:
  explicit PlainPooling(const PoolingSpec& spec) : spec_(spec), output_(spec.output()) {}

  [[nodiscard]] float forward(std::int64_t index) const {
    const Place at = place_of(index, output_);
    return window(at.n, at.h, at.w, at.c).result;
  }

  /// Empty where two elements of a window have its maximum: either may get the gradient.
  [[nodiscard]] std::optional<float> backward(std::int64_t index) const {
    const Place at = place_of(index, spec_.input);
    const float own = x(at.n, at.h, at.w, at.c);
    float sum = 0.0F;
    for (std::int64_t h = 0; h < output_.h; ++h) {
      for (std::int64_t w = 0; w < output_.w; ++w) {
        const std::int64_t row = at.h - (h * spec_.stride - spec_.pad_top);
        const std::int64_t column = at.w - (w * spec_.stride - spec_.pad_left);
        if (row < 0 || row >= spec_.window_h || column < 0 || column >= spec_.window_w) continue;
        const Window around = window(at.n, h, w, at.c);
        const float dy = value_at(((at.n * output_.h + h) * output_.w + w) * output_.c + at.c);
        if (spec_.kind == PoolingKind::average) {
          sum += dy / static_cast<float>(around.elements);
        } else if (own == around.result) {
          if (around.maxima > 1) return std::nullopt;
          sum += dy;
        }
      }
    }
    return sum;
  }

 private:
  struct Place {
    std::int64_t n, h, w, c;
  };
  struct Window {
    float result;
    int elements;
    int maxima;
  };

  static Place place_of(std::int64_t index, const Shape& shape) {
    return {.n = index / shape.image(),
            .h = index / shape.c / shape.w % shape.h,
            .w = index / shape.c % shape.w,
            .c = index % shape.c};
  }
  [[nodiscard]] float x(std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c) const {
    return varied_value_at(((n * spec_.input.h + h) * spec_.input.w + w) * spec_.input.c + c);
  }

  [[nodiscard]] Window window(std::int64_t n, std::int64_t h, std::int64_t w,
                              std::int64_t c) const {
    const std::int64_t top = h * spec_.stride - spec_.pad_top;
    const std::int64_t left = w * spec_.stride - spec_.pad_left;
    float sum = 0.0F;
    float most = -1.0F;
    int elements = 0;
    int maxima = 0;
    for (std::int64_t row = std::max<std::int64_t>(top, 0);
         row < std::min(top + spec_.window_h, spec_.input.h); ++row) {
      for (std::int64_t column = std::max<std::int64_t>(left, 0);
           column < std::min(left + spec_.window_w, spec_.input.w); ++column) {
        const float value = x(n, row, column, c);
        sum += value;
        elements += 1;
        maxima = value > most ? 1 : maxima + static_cast<int>(value == most);
        most = std::max(most, value);
      }
    }
    const bool average = spec_.kind == PoolingKind::average;
    return {average ? sum / static_cast<float>(elements) : most, elements, maxima};
  }

  PoolingSpec spec_;
  Shape output_;
};

bool are_close(float found, float expected, DataType type) {
  const float rounding = type == DataType::bf16 ? 0.01F : 1e-5F;
  return std::abs(found - expected) <= rounding * std::max(1.0F, std::abs(expected));
}

/// The arrays of both passes.
class PoolingTrial {
 public:
  PoolingTrial(const Engine::Impl& on, const dnnl::primitive_desc_base& forward,
               const PoolingSpec& spec)
      : on_(on),
        spec_(spec),
        x_(add(DNNL_ARG_SRC, activation_layout(spec.input, spec.type))),
        y_(add(DNNL_ARG_DST, activation_layout(spec.output(), spec.type))) {
    x_.fill(spec.type, &varied_value_at);
    const memory::desc workspace = forward.query_md(dnnl::query::workspace_md);
    if (workspace.get_size() > 0) add(DNNL_ARG_WORKSPACE, workspace);
    run(forward);
  }

  bool forward_passes() {
    const PlainPooling plain(spec_);
    const Shape shape = spec_.output();
    return are_whole() &&
           std::ranges::all_of(compared_elements(shape.size(), shape.w * shape.c), [&](auto index) {
             return are_close(y_.at(spec_.type, index), plain.forward(index), spec_.type);
           });
  }

  bool passes(const dnnl::primitive_desc_base& backward) {
    GuardedArray& dx = add(DNNL_ARG_DIFF_SRC, activation_layout(spec_.input, spec_.type));
    add(DNNL_ARG_DIFF_DST, activation_layout(spec_.output(), spec_.type))
        .fill(spec_.type, &value_at);
    run(backward);
    const PlainPooling plain(spec_);
    const Shape& shape = spec_.input;
    return are_whole() &&
           std::ranges::all_of(compared_elements(shape.size(), shape.w * shape.c), [&](auto index) {
             const auto expected = plain.backward(index);
             return !expected || are_close(dx.at(spec_.type, index), *expected, spec_.type);
           });
  }

 private:
  GuardedArray& add(int role, const memory::desc& layout) {
    GuardedArray& array = arrays_.emplace_back(layout.get_size());
    arguments_.insert_or_assign(role, memory(layout, on_.cpu(), array.data()));
    return array;
  }
  void run(const dnnl::primitive_desc_base& kernel) {
    add(DNNL_ARG_SCRATCHPAD, kernel.scratchpad_desc());
    dnnl::primitive(kernel.get()).execute(on_.stream(), arguments_);
  }
  [[nodiscard]] bool are_whole() const {
    return std::ranges::all_of(arrays_, &GuardedArray::is_whole);
  }

  const Engine::Impl& on_;
  PoolingSpec spec_;
  std::deque<GuardedArray> arrays_;
  std::unordered_map<int, memory> arguments_;
  GuardedArray& x_;
  GuardedArray& y_;
};

}  // namespace

bool computes_correctly(const Engine::Impl& on, const dnnl::primitive_desc_base& forward,
                        const PoolingSpec& spec) {
  return PoolingTrial(on, forward, spec).forward_passes();
}

bool computes_correctly(const Engine::Impl& on, const dnnl::primitive_desc_base& forward,
                        const dnnl::primitive_desc_base& backward, const PoolingSpec& spec) {
  return PoolingTrial(on, forward, spec).passes(backward);
}

}  // namespace rondo::tensor::onednn

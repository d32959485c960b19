// A test of one kernel of oneDNN, for releases whose kernels nobody has compared with plain loops.
//
// An element's value follows from its index, so a sum over a few thousand products needs no copy of
// the arrays.

#include "onednn_self_test.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "guarded_array.hpp"
#include "onednn_calls.hpp"
#include "onednn_kernel.hpp"
#include "reorder.hpp"

namespace rondo::tensor::onednn {
namespace {

using dnnl::memory;
using dnnl::query;

/// The elements of the result by plain sums, and where the arrays hold theirs.
class PlainSums {
 public:
  explicit PlainSums(const ConvolutionSpec& spec)
      : spec_(spec),
        output_(spec.output()),
        group_channels_(spec.input.c / spec.groups),
        group_filters_(spec.filters / spec.groups) {}

  [[nodiscard]] std::int64_t size(Pass pass) const noexcept {
    if (pass == Pass::backward_weights) return spec_.weights();
    return (pass == Pass::forward ? output_ : spec_.input).size();
  }

  [[nodiscard]] float operator()(Pass pass, std::int64_t index) const {
    switch (pass) {
      case Pass::forward:
        return forward(index);
      case Pass::backward_data:
        return backward_data(index);
      default:
        return backward_weights(index);
    }
  }

 private:
  [[nodiscard]] float x(std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c) const {
    if (h < 0 || h >= spec_.input.h || w < 0 || w >= spec_.input.w) return 0.0F;
    return value_at(((n * spec_.input.h + h) * spec_.input.w + w) * spec_.input.c + c);
  }
  [[nodiscard]] float dy(std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t f) const {
    if (h < 0 || h >= output_.h || w < 0 || w >= output_.w) return 0.0F;
    return value_at(((n * output_.h + h) * output_.w + w) * output_.c + f);
  }
  [[nodiscard]] float weight(std::int64_t f, std::int64_t c, std::int64_t kh,
                             std::int64_t kw) const {
    return value_at(((f * group_channels_ + c) * spec_.kernel_h + kh) * spec_.kernel_w + kw);
  }

  [[nodiscard]] float forward(std::int64_t index) const {
    const std::int64_t f = index % output_.c;
    const std::int64_t column = index / output_.c % output_.w;
    const std::int64_t row = index / output_.c / output_.w % output_.h;
    const std::int64_t image = index / output_.image();
    const std::int64_t first = f / group_filters_ * group_channels_;
    float sum = spec_.bias ? value_at(f) : 0.0F;
    for (std::int64_t kh = 0; kh < spec_.kernel_h; ++kh) {
      for (std::int64_t kw = 0; kw < spec_.kernel_w; ++kw) {
        for (std::int64_t c = 0; c < group_channels_; ++c) {
          sum += x(image, row * spec_.stride + kh - spec_.pad_top,
                   column * spec_.stride + kw - spec_.pad_left, first + c) *
                 weight(f, c, kh, kw);
        }
      }
    }
    return sum;
  }

  [[nodiscard]] float backward_data(std::int64_t index) const {
    const std::int64_t channel = index % spec_.input.c;
    const std::int64_t column = index / spec_.input.c % spec_.input.w;
    const std::int64_t row = index / spec_.input.c / spec_.input.w % spec_.input.h;
    const std::int64_t image = index / spec_.input.image();
    const std::int64_t first = channel / group_channels_ * group_filters_;
    float sum = 0.0F;
    for (std::int64_t kh = 0; kh < spec_.kernel_h; ++kh) {
      for (std::int64_t kw = 0; kw < spec_.kernel_w; ++kw) {
        const std::int64_t h = row + spec_.pad_top - kh;
        const std::int64_t w = column + spec_.pad_left - kw;
        if (h % spec_.stride != 0 || w % spec_.stride != 0) continue;
        for (std::int64_t f = 0; f < group_filters_; ++f) {
          sum += dy(image, h / spec_.stride, w / spec_.stride, first + f) *
                 weight(first + f, channel % group_channels_, kh, kw);
        }
      }
    }
    return sum;
  }

  [[nodiscard]] float backward_weights(std::int64_t index) const {
    const std::int64_t kw = index % spec_.kernel_w;
    const std::int64_t kh = index / spec_.kernel_w % spec_.kernel_h;
    const std::int64_t c = index / spec_.kernel_w / spec_.kernel_h % group_channels_;
    const std::int64_t f = index / spec_.kernel_w / spec_.kernel_h / group_channels_;
    const std::int64_t channel = f / group_filters_ * group_channels_ + c;
    float sum = 0.0F;
    for (std::int64_t n = 0; n < output_.n; ++n) {
      for (std::int64_t h = 0; h < output_.h; ++h) {
        for (std::int64_t w = 0; w < output_.w; ++w) {
          sum += dy(n, h, w, f) * x(n, h * spec_.stride + kh - spec_.pad_top,
                                    w * spec_.stride + kw - spec_.pad_left, channel);
        }
      }
    }
    return sum;
  }

  ConvolutionSpec spec_;
  Shape output_;
  std::int64_t group_channels_;
  std::int64_t group_filters_;
};

/// One run of a kernel over guarded arrays, with what it needs to be run.
class Trial {
 public:
  Trial(const Engine::Impl& on, Pass pass, const dnnl::primitive_desc_base& kernel,
        const ConvolutionSpec& spec)
      : on_(on), pass_(pass), kernel_(kernel), spec_(spec) {}

  bool passes() {
    const memory::desc result = layout_of_result();
    GuardedArray& into = add(role_of_result(), result);
    if (pass_ != Pass::backward_data) add_activation(DNNL_ARG_SRC, query::src_md, spec_.type);
    if (pass_ != Pass::forward) add_activation(DNNL_ARG_DIFF_DST, query::diff_dst_md, spec_.type);
    if (pass_ != Pass::backward_weights) add_weights();
    add_bias();
    add(DNNL_ARG_SCRATCHPAD, kernel_.scratchpad_desc());
    dnnl::primitive(kernel_.get()).execute(on_.stream(), arguments_);
    if (!std::ranges::all_of(arrays_, &GuardedArray::is_whole)) return false;
    return pass_ == Pass::backward_weights ? has_right_gradient(into, result)
                                           : has_right_elements(into, type_of_result());
  }

 private:
  [[nodiscard]] int role_of_result() const {
    if (pass_ == Pass::forward) return DNNL_ARG_DST;
    return pass_ == Pass::backward_data ? DNNL_ARG_DIFF_SRC : DNNL_ARG_DIFF_WEIGHTS;
  }
  [[nodiscard]] memory::desc layout_of_result() const {
    if (pass_ == Pass::forward) return kernel_.query_md(query::dst_md);
    if (pass_ == Pass::backward_data) return kernel_.query_md(query::diff_src_md);
    return kernel_.query_md(query::diff_weights_md, 0);
  }
  [[nodiscard]] DataType type_of_result() const {
    return pass_ == Pass::forward ? spec_.output_type() : spec_.input_gradient_type();
  }

  GuardedArray& add(int role, const memory::desc& layout) {
    GuardedArray& array = arrays_.emplace_back(layout.get_size());
    arguments_.insert_or_assign(role, memory(layout, on_.cpu(), array.data()));
    return array;
  }

  void add_activation(int role, query layout, DataType type) {
    add(role, kernel_.query_md(layout)).fill(type, &value_at);
  }

  /// [F,C,KH,KW], whatever the layout of the kernel.
  [[nodiscard]] static memory::desc plain(const memory::desc& layout) {
    using tag = memory::format_tag;
    const auto extents = dims_of(layout);
    const tag order = extents.size() == 2 ? tag::oi : extents.size() == 4 ? tag::oihw : tag::goihw;
    return {extents, memory::data_type::f32, order};
  }

  // The padding of blocks is zero in packed weights.
  void add_weights() {
    const memory::desc layout = kernel_.query_md(query::weights_md, 0);
    const memory::desc plain_layout = plain(layout);
    GuardedArray weights(plain_layout.get_size());
    weights.fill(DataType::f32, &value_at);
    GuardedArray& packed = add(DNNL_ARG_WEIGHTS, layout);
    std::memset(packed.data(), 0, layout.get_size());
    PlainReorder(plain_layout, layout).run(weights.data(), packed.data());
  }

  void add_bias() {
    if (!spec_.bias || pass_ == Pass::backward_data) return;
    if (pass_ == Pass::forward) {
      add(DNNL_ARG_BIAS, kernel_.query_md(query::weights_md, 1)).fill(DataType::f32, &value_at);
    } else {
      add(DNNL_ARG_DIFF_BIAS, kernel_.query_md(query::diff_weights_md, 1));
    }
  }

  [[nodiscard]] bool has_right_gradient(GuardedArray& into, const memory::desc& layout) {
    GuardedArray result(plain(layout).get_size());
    PlainReorder(layout, plain(layout)).run(into.data(), result.data());
    // The layer writes zeros there after the kernel has run.
    const auto zeros = taps_in_padding(spec_);
    const std::int64_t window = spec_.kernel_h * spec_.kernel_w;
    for (std::int64_t i = 0; i < spec_.weights(); ++i) {
      if (std::ranges::find(zeros, static_cast<std::size_t>(i % window)) != zeros.end()) {
        static_cast<float*>(result.data())[i] = 0.0F;
      }
    }
    return has_right_elements(result, DataType::f32);
  }

  [[nodiscard]] bool has_right_elements(GuardedArray& result, DataType type) const {
    const PlainSums plain_sums(spec_);
    const std::int64_t row = pass_ == Pass::backward_weights ? spec_.kernel_w
                             : pass_ == Pass::forward        ? spec_.output().w * spec_.filters
                                                             : spec_.input.w * spec_.input.c;
    const bool relu = pass_ == Pass::forward && spec_.activation == Activation::relu &&
                      kernel_.get_primitive_attr().get_post_ops().len() > 0;
    return std::ranges::all_of(compared_elements(plain_sums.size(pass_), row),
                               [&](std::int64_t index) {
                                 float expected = plain_sums(pass_, index);
                                 if (relu) expected = std::max(0.0F, expected);
                                 if (type == DataType::bf16)
                                   expected = to_float(to_bfloat16(expected));
                                 return result.at(type, index) == expected;
                               });
  }

  const Engine::Impl& on_;
  Pass pass_;
  const dnnl::primitive_desc_base& kernel_;
  ConvolutionSpec spec_;
  std::deque<GuardedArray> arrays_;
  std::unordered_map<int, memory> arguments_;
};

}  // namespace

bool computes_correctly(const Engine::Impl& on, Pass pass, const dnnl::primitive_desc_base& kernel,
                        const ConvolutionSpec& spec) {
  return Trial(on, pass, kernel, spec).passes();
}

// Ranks may be threads of one process, and each has an engine of its own.
bool told_once(const std::string& key, const std::function<bool()>& test) {
  static std::mutex mutex;
  static std::unordered_map<std::string, bool> answers;
  {
    const std::lock_guard lock(mutex);
    const auto known = answers.find(key);
    if (known != answers.end()) return known->second;
  }
  const bool answer = test();
  const std::lock_guard lock(mutex);
  return answers.emplace(key, answer).first->second;
}

bool tested_once(const Engine::Impl& on, const dnnl::primitive_desc_base& kernel,
                 std::initializer_list<std::int64_t> numbers, const std::function<bool()>& test) {
  // Reference kernels are refused elsewhere, and their test would take minutes.
  if (is_tried(version()) || is_reference(kernel) || on.forecasts()) return true;
  std::string key = kernel.impl_info_str() + (" by " + std::to_string(on.threads()));
  for (const std::int64_t number : numbers) key += " " + std::to_string(number);
  return told_once(key, test);
}

bool is_sound(const Engine::Impl& on, Pass pass, const dnnl::primitive_desc_base& kernel,
              const ConvolutionSpec& spec) {
  if (defect_of(pass, kernel.impl_info_str(), spec) != nullptr) return false;
  return tested_once(on, kernel,
                     {static_cast<std::int64_t>(pass), spec.input.n, spec.input.h, spec.input.w,
                      spec.input.c, spec.filters, spec.kernel_h, spec.kernel_w, spec.stride,
                      spec.pad_top, spec.pad_bottom, spec.pad_left, spec.pad_right,
                      std::int64_t{spec.bias}, spec.groups, static_cast<std::int64_t>(spec.type),
                      std::int64_t{spec.f32_output}, std::int64_t{spec.f32_input_gradient},
                      std::int64_t{kernel.get_primitive_attr().get_post_ops().len()}},
                     [&] { return computes_correctly(on, pass, kernel, spec); });
}

}  // namespace rondo::tensor::onednn

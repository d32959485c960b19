// The gradients of convolutions in turn with those of oneDNN's backward kernels:
//   kernels-in-turn [PAIRS [IMAGES [LAYER...]]]
// The default is 41 pairs, 64 images and the layers of ResNet-20; a LAYER is
// EXTENT,CHANNELS,FILTERS,KERNEL,STRIDE, such as 56,64,128,3,2. One thread runs our layer, then
// oneDNN's kernel on the same images, then our layer again, so that a change of the clock meets
// both. Layers whose kernel is oneDNN's too are compared with themselves: how far their ratio is
// from 1 tells what the others' ratios are worth.
//
// Columns: the medians in us, the median of the pairs' ratios (above 1, we are faster), and the
// kernels' names.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <iterator>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

#include <rondo/tensor/convolution.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/tensor.hpp>

namespace {

using namespace rondo::tensor;
using dnnl::memory;

enum class Gradient : std::uint8_t { of_input, of_weights };

struct Layer {
  std::int64_t extent = 0, channels = 0, filters = 0, kernel = 0, stride = 0;
};

constexpr Layer resnet20[] = {{32, 16, 16, 3, 1},
                              {32, 16, 32, 3, 2},
                              {16, 32, 32, 3, 1},
                              {16, 32, 64, 3, 2},
                              {8, 64, 64, 3, 1}};

// Padded as such networks are: with odd kernels extent / stride rows of output.
ConvolutionSpec spec_of(const Layer& layer, std::int64_t images, DataType type) {
  const std::int64_t before = layer.kernel / 2;
  const std::int64_t behind = std::max<std::int64_t>(0, before - layer.stride + 1);
  return {.input = {images, layer.extent, layer.extent, layer.channels},
          .filters = layer.filters,
          .kernel_h = layer.kernel,
          .kernel_w = layer.kernel,
          .stride = layer.stride,
          .pad_top = before,
          .pad_bottom = behind,
          .pad_left = before,
          .pad_right = behind,
          .type = type};
}

Layer layer_of(const std::string& text) {
  Layer layer;
  std::istringstream in(text);
  char comma = ',';
  in >> layer.extent >> comma >> layer.channels >> comma >> layer.filters >> comma >>
      layer.kernel >> comma >> layer.stride;
  if (in.fail() || !in.eof()) {
    throw std::invalid_argument("'" + text + "' is no EXTENT,CHANNELS,FILTERS,KERNEL,STRIDE");
  }
  return layer;
}

/// Halves between -1 and 1, which bf16 holds exactly.
void fill(AnyTensor& tensor) {
  for (std::int64_t i = 0; i < tensor.shape().size(); ++i) {
    const float value = static_cast<float>(i * 7 % 5 - 2) / 2.0F;
    if (tensor.type() == DataType::bf16) {
      static_cast<Bfloat16*>(tensor.data())[i] = to_bfloat16(value);
    } else {
      static_cast<float*>(tensor.data())[i] = value;
    }
  }
}

/// What one gradient reads and writes, and oneDNN's kernel for it in the layouts that it likes.
class Subject {
 public:
  Subject(const ConvolutionSpec& spec, Gradient gradient)
      : layer_(engine_, spec), gradient_(gradient) {
    fill(x_ = AnyTensor(spec.input, spec.type));
    fill(dy_ = AnyTensor(spec.output(), spec.type));
    dx_ = AnyTensor(spec.input, spec.type);
    layer_.pack_weights(std::vector<float>(static_cast<std::size_t>(spec.weights()), 0.5F));
    make_kernel(spec);
  }

  void run_ours() {
    if (gradient_ == Gradient::of_input) {
      layer_.backward_data(dy_.view(), dx_.view());
    } else {
      layer_.backward_weights(x_.view(), dy_.view(), {});
    }
  }

  void run_onednn() {
    kernel_.execute(stream_, arguments_);
    stream_.wait();
  }

  [[nodiscard]] std::string names() const { return layer_.implementation() + " | " + name_; }

 private:
  /// Weights, zeroed: whatever else lies there could be slow to compute with.
  [[nodiscard]] memory make_weights(const memory::desc& layout) const {
    memory weights(layout, cpu_);
    std::memset(weights.get_data_handle(), 0, layout.get_size());
    return weights;
  }

  void make_kernel(const ConvolutionSpec& spec) {
    using dnnl::algorithm;
    const auto type =
        spec.type == DataType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
    const auto activation = [&](const Shape& s) {
      return memory::desc({s.n, s.c, s.h, s.w}, type, memory::format_tag::nhwc);
    };
    const memory::dims weights{spec.filters, spec.input.c, spec.kernel_h, spec.kernel_w};
    const memory::dims strides{spec.stride, spec.stride};
    const memory::dims before{spec.pad_top, spec.pad_left};
    const memory::dims after{spec.pad_bottom, spec.pad_right};
    const memory::desc x = activation(spec.input);
    const memory::desc y = activation(spec.output());
    const memory::desc any(weights, type, memory::format_tag::any);
    const memory::desc gradient(weights, memory::data_type::f32, memory::format_tag::any);
    const dnnl::convolution_forward::primitive_desc hint(
        {dnnl::prop_kind::forward_training, algorithm::convolution_direct, x, any, y, strides,
         before, after},
        cpu_);
    if (gradient_ == Gradient::of_input) {
      const dnnl::convolution_backward_data::primitive_desc desc(
          {algorithm::convolution_direct, x, any, y, strides, before, after}, cpu_, hint);
      name_ = desc.impl_info_str();
      kernel_ = dnnl::convolution_backward_data(desc);
      arguments_ = {{DNNL_ARG_DIFF_DST, memory(y, cpu_, dy_.data())},
                    {DNNL_ARG_WEIGHTS, make_weights(desc.weights_desc())},
                    {DNNL_ARG_DIFF_SRC, memory(x, cpu_, dx_.data())}};
    } else {
      const dnnl::convolution_backward_weights::primitive_desc desc(
          {algorithm::convolution_direct, x, gradient, y, strides, before, after}, cpu_, hint);
      name_ = desc.impl_info_str();
      kernel_ = dnnl::convolution_backward_weights(desc);
      arguments_ = {{DNNL_ARG_SRC, memory(x, cpu_, x_.data())},
                    {DNNL_ARG_DIFF_DST, memory(y, cpu_, dy_.data())},
                    {DNNL_ARG_DIFF_WEIGHTS, make_weights(desc.diff_weights_desc())}};
    }
  }

  Engine engine_;
  dnnl::engine cpu_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{cpu_};
  Convolution layer_;
  Gradient gradient_;
  AnyTensor x_, dy_, dx_;
  dnnl::primitive kernel_;
  std::string name_;
  std::unordered_map<int, memory> arguments_;
};

double microseconds(const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  const auto began = Clock::now();
  work();
  return std::chrono::duration<double, std::micro>(Clock::now() - began).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

void compare(const ConvolutionSpec& spec, Gradient gradient, int pairs) {
  Subject subject(spec, gradient);
  std::vector<double> ours, onednn, ratios;
  for (int pair = -2; pair < pairs; ++pair) {  // two to warm up
    const double first = microseconds([&] { subject.run_ours(); });
    const double theirs = microseconds([&] { subject.run_onednn(); });
    const double second = microseconds([&] { subject.run_ours(); });
    if (pair < 0) continue;
    ours.push_back((first + second) / 2);
    onednn.push_back(theirs);
    ratios.push_back(theirs / ours.back());
  }
  std::printf("%-8s %4s %3lld %4lld->%-4lld %6lld %5lld %9.1f %9.1f %6.2f  %s\n",
              gradient == Gradient::of_input ? "input" : "weights", name_of(spec.type),
              static_cast<long long>(spec.input.h), static_cast<long long>(spec.input.c),
              static_cast<long long>(spec.filters), static_cast<long long>(spec.kernel_h),
              static_cast<long long>(spec.stride), median(ours), median(onednn), median(ratios),
              subject.names().c_str());
  std::fflush(stdout);
}

int compare_all(int pairs, std::int64_t images, std::span<const Layer> layers) {
  if (pairs < 1 || images < 1) {
    std::fputs("kernels-in-turn [PAIRS [IMAGES [LAYER...]]]: both are at least 1\n", stderr);
    return 2;
  }
  std::puts("gradient type extent filters kernel stride  ours, us oneDNN, us ratio kernels");
  for (const DataType type : {DataType::f32, DataType::bf16}) {
    if (type == DataType::bf16 && !computes_bf16()) continue;
    for (const Gradient gradient : {Gradient::of_weights, Gradient::of_input}) {
      for (const Layer& layer : layers) compare(spec_of(layer, images, type), gradient, pairs);
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<Layer> layers;
    for (int i = 3; i < argc; ++i) layers.push_back(layer_of(argv[i]));
    if (layers.empty()) layers.assign(std::begin(resnet20), std::end(resnet20));
    return compare_all(argc > 1 ? std::atoi(argv[1]) : 41, argc > 2 ? std::atoi(argv[2]) : 64,
                       layers);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kernels-in-turn: %s\n", error.what());
    return 1;
  }
}

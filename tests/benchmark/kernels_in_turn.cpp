// Convolutions in turn with those of oneDNN's kernels:
//   kernels-in-turn [PAIRS [IMAGES [LAYER...]]]
// The default is 41 pairs, 64 images and resnet20. A LAYER is
// EXTENT,CHANNELS,FILTERS,KERNEL,STRIDE, such as 56,64,128,3,2, or a network, of which all
// different convolutions are taken: resnet20, resnet50, vgg16. One thread runs our layer, then
// oneDNN's kernel on the same images, then our layer again, so that a change of the clock meets
// both. Layers whose kernel is oneDNN's too are compared with themselves: how far their ratio is
// from 1 tells what the others' ratios are worth.
//
// Columns: the medians in us, the rates in GFLOP/s, the median of the pairs' ratios (above 1, we
// are faster), and the kernels' names.

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

#include <rondo/tensor/convolution.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/tensor.hpp>

#include "onednn_calls.hpp"
#include "onednn_defects.hpp"
#include "onednn_kernel.hpp"

namespace {

using namespace rondo::tensor;
using dnnl::memory;
using rondo::tensor::name_of;

enum class Pass : std::uint8_t { forward, input, weights };

constexpr const char* name_of(Pass pass) {
  return pass == Pass::forward ? "forward" : pass == Pass::input ? "input" : "weights";
}

struct Layer {
  std::int64_t extent = 0, channels = 0, filters = 0, kernel = 0, stride = 0;
};

constexpr Layer resnet20[] = {{32, 16, 16, 3, 1},
                              {32, 16, 32, 3, 2},
                              {16, 32, 32, 3, 1},
                              {16, 32, 64, 3, 2},
                              {8, 64, 64, 3, 1}};

constexpr Layer resnet50[] = {
    {224, 3, 64, 7, 2},   {56, 64, 64, 1, 1},    {56, 64, 64, 3, 1},    {56, 64, 256, 1, 1},
    {56, 256, 64, 1, 1},  {56, 256, 128, 1, 1},  {56, 128, 128, 3, 2},  {56, 256, 512, 1, 2},
    {28, 128, 512, 1, 1}, {28, 512, 128, 1, 1},  {28, 128, 128, 3, 1},  {28, 512, 256, 1, 1},
    {28, 256, 256, 3, 2}, {28, 512, 1024, 1, 2}, {14, 256, 1024, 1, 1}, {14, 1024, 256, 1, 1},
    {14, 256, 256, 3, 1}, {14, 1024, 512, 1, 1}, {14, 512, 512, 3, 2},  {14, 1024, 2048, 1, 2},
    {7, 512, 2048, 1, 1}, {7, 2048, 512, 1, 1},  {7, 512, 512, 3, 1}};

constexpr Layer vgg16[] = {{224, 3, 64, 3, 1},    {224, 64, 64, 3, 1},  {112, 64, 128, 3, 1},
                           {112, 128, 128, 3, 1}, {56, 128, 256, 3, 1}, {56, 256, 256, 3, 1},
                           {28, 256, 512, 3, 1},  {28, 512, 512, 3, 1}, {14, 512, 512, 3, 1}};

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

void append_layers(std::vector<Layer>& layers, const std::string& text) {
  const auto network = text == "resnet20"   ? std::span<const Layer>(resnet20)
                       : text == "resnet50" ? std::span<const Layer>(resnet50)
                       : text == "vgg16"    ? std::span<const Layer>(vgg16)
                                            : std::span<const Layer>();
  layers.insert(layers.end(), network.begin(), network.end());
  if (network.empty()) layers.push_back(layer_of(text));
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

/// The arrays of one pass, and oneDNN's kernel for it in the layouts that it likes.
class Subject {
 public:
  Subject(const ConvolutionSpec& spec, Pass pass) : layer_(engine_, spec), pass_(pass) {
    fill(x_ = AnyTensor(spec.input, spec.type));
    fill(dy_ = AnyTensor(spec.output(), spec.type));
    result_ = AnyTensor(pass == Pass::forward ? spec.output() : spec.input, spec.type);
    layer_.pack_weights(std::vector<float>(static_cast<std::size_t>(spec.weights()), 0.5F));
    make_kernel(spec);
  }

  void run_ours() {
    switch (pass_) {
      case Pass::forward:
        return layer_.forward(x_.view(), {}, result_.view());
      case Pass::input:
        return layer_.backward_data(dy_.view(), result_.view());
      case Pass::weights:
        return layer_.backward_weights(x_.view(), dy_.view(), {});
    }
  }

  void run_onednn() {
    if (!kernel_) return run_ours();
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
    if (onednn::ends_the_process(spec)) {
      name_ = "none";
      return;
    }
    const memory::dims extents{spec.filters, spec.input.c, spec.kernel_h, spec.kernel_w};
    const memory::dims strides{spec.stride, spec.stride};
    const memory::dims before{spec.pad_top, spec.pad_left};
    const memory::dims after{spec.pad_bottom, spec.pad_right};
    const memory::desc x = activation_layout(spec.input, spec.type);
    const memory::desc y = activation_layout(spec.output(), spec.type);
    const memory::desc any(extents, onednn_type(spec.type), memory::format_tag::any);
    const memory::desc gradient(extents, memory::data_type::f32, memory::format_tag::any);
    const dnnl::primitive_attr plain;
    const onednn::Setting on{cpu_, plain};
    const auto first = [](const auto&) { return true; };
    const auto forward = onednn::forward_kernel<dnnl::convolution_forward>(
        on, first, dnnl::prop_kind::forward_training, algorithm::convolution_direct, x, any, y,
        strides, before, after);
    if (pass_ == Pass::forward) {
      arguments_ = {{DNNL_ARG_SRC, memory(x, cpu_, x_.data())},
                    {DNNL_ARG_WEIGHTS, make_weights(forward.weights_desc())},
                    {DNNL_ARG_DST, memory(y, cpu_, result_.data())}};
      return take(dnnl::convolution_forward(forward), forward);
    }
    if (pass_ == Pass::input) {
      const auto desc = onednn::backward_kernel<dnnl::convolution_backward_data>(
          on, forward, first, algorithm::convolution_direct, x, any, y, strides, before, after);
      arguments_ = {{DNNL_ARG_DIFF_DST, memory(y, cpu_, dy_.data())},
                    {DNNL_ARG_WEIGHTS, make_weights(desc.weights_desc())},
                    {DNNL_ARG_DIFF_SRC, memory(x, cpu_, result_.data())}};
      return take(dnnl::convolution_backward_data(desc), desc);
    }
    const auto desc = onednn::backward_kernel<dnnl::convolution_backward_weights>(
        on, forward, first, algorithm::convolution_direct, x, gradient, y, strides, before, after);
    arguments_ = {{DNNL_ARG_SRC, memory(x, cpu_, x_.data())},
                  {DNNL_ARG_DIFF_DST, memory(y, cpu_, dy_.data())},
                  {DNNL_ARG_DIFF_WEIGHTS, make_weights(desc.diff_weights_desc())}};
    take(dnnl::convolution_backward_weights(desc), desc);
  }

  void take(const dnnl::primitive& kernel, const dnnl::primitive_desc_base& desc) {
    kernel_ = kernel;
    name_ = desc.impl_info_str();
  }

  Engine engine_{1, std::pmr::get_default_resource(), ConvolutionAlgorithm::fast};
  dnnl::engine cpu_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{cpu_};
  Convolution layer_;
  Pass pass_;
  AnyTensor x_, dy_, result_;
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

void compare(const ConvolutionSpec& spec, Pass pass, int pairs) {
  Subject subject(spec, pass);
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
  const double operations = 2.0 * static_cast<double>(spec.output().size() / spec.filters) *
                            static_cast<double>(spec.weights());
  const auto rate = [&](const std::vector<double>& times) {
    return operations / median(times) / 1e3;
  };
  std::printf("%-8s %4s %3lld %4lld->%-4lld %6lld %5lld %9.1f %9.1f %7.1f %7.1f %6.2f  %s\n",
              name_of(pass), name_of(spec.type), static_cast<long long>(spec.input.h),
              static_cast<long long>(spec.input.c), static_cast<long long>(spec.filters),
              static_cast<long long>(spec.kernel_h), static_cast<long long>(spec.stride),
              median(ours), median(onednn), rate(ours), rate(onednn), median(ratios),
              subject.names().c_str());
  std::fflush(stdout);
}

int compare_all(int pairs, std::int64_t images, std::span<const Layer> layers) {
  if (pairs < 1 || images < 1) {
    std::fputs("kernels-in-turn [PAIRS [IMAGES [LAYER...]]]: both are at least 1\n", stderr);
    return 2;
  }
  std::printf(
      "oneDNN %s\npass     type extent filters kernel stride  ours, us oneDNN, us  GFLOP/s  oneDNN "
      " ratio  kernels\n",
      onednn_version().c_str());
  for (const DataType type : {DataType::f32, DataType::bf16}) {
    if (type == DataType::bf16 && !computes_bf16()) continue;
    for (const Pass pass : {Pass::forward, Pass::input, Pass::weights}) {
      for (const Layer& layer : layers) compare(spec_of(layer, images, type), pass, pairs);
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<Layer> layers;
    for (int i = 3; i < argc; ++i) append_layers(layers, argv[i]);
    if (layers.empty()) append_layers(layers, "resnet20");
    return compare_all(argc > 1 ? std::atoi(argv[1]) : 41, argc > 2 ? std::atoi(argv[2]) : 64,
                       layers);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kernels-in-turn: %s\n", error.what());
    return 1;
  }
}

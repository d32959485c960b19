#include "plan/work_key.hpp"

#include <fmt/format.h>

#include <fstream>

#include <rondo/tensor/engine.hpp>

namespace rondo::train {
namespace {

std::string text_of(const ConvolutionLayer& layer) {
  return fmt::format("convolution {} k{} s{} p{} bias{} act{}", layer.filters, layer.kernel,
                     layer.stride, layer.padding, layer.bias ? 1 : 0,
                     static_cast<int>(layer.activation));
}

std::string text_of(const BatchNormLayer& layer) {
  return fmt::format("norm act{} residual{}", static_cast<int>(layer.activation),
                     layer.residual ? 1 : 0);
}

std::string text_of(const PoolingLayer& layer) {
  return fmt::format("pooling{} k{} s{} p{}", static_cast<int>(layer.kind), layer.window,
                     layer.stride, layer.padding);
}

std::string text_of(const GlobalAveragePoolingLayer& /*layer*/) { return "average"; }

std::string text_of(const FullyConnectedLayer& layer) {
  return fmt::format("connected {} act{}", layer.outputs, static_cast<int>(layer.activation));
}

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

}  // namespace

std::string key_of(const LocalWork& work) {
  const std::string kind = std::visit([](const auto& layer) { return text_of(layer); }, work.kind);
  return fmt::format("{} on {}x{}x{}x{}{}", kind, work.input.n, work.input.h, work.input.w,
                     work.input.c, work.input_gradient ? "" : " without dx");
}

std::string machine_key(int threads) {
  return fmt::format("oneDNN {}, {}, {} threads: ", tensor::onednn_version(), processor(), threads);
}

}  // namespace rondo::train

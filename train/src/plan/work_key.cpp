#include "plan/work_key.hpp"

#include <fmt/format.h>

#include <fstream>

#include <rondo/tensor/engine.hpp>

#include "layers/layer_type.hpp"

namespace rondo::train {
namespace {

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

}  // namespace

std::string key_of(const LocalWork& work) {
  return fmt::format("{} on {}x{}x{}x{}{}", work.kind->text(), work.input.n, work.input.h,
                     work.input.w, work.input.c, work.input_gradient ? "" : " without dx");
}

std::string machine_key(int threads) {
  return fmt::format("oneDNN {}, {}, {} threads: ", tensor::onednn_version(), processor(), threads);
}

}  // namespace rondo::train

#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include <rondo/tensor/engine.hpp>
#include <rondo/train/model_benchmark.hpp>

namespace rondo::train {

/// The median time of run() in microseconds: warmed up, then repeated until `budget` is used up, at
/// least 5 and at most 200 times. Each time before() comes first, and is not counted.
template <typename Run, typename Before>
double median_microseconds(std::chrono::microseconds budget, const Run& run, const Before& before) {
  using Clock = std::chrono::steady_clock;
  constexpr std::size_t fewest = 5;
  constexpr std::size_t most = 200;
  for (int warm_up = 0; warm_up < 2; ++warm_up) run();
  std::vector<double> times;
  const Clock::time_point start = Clock::now();
  while (times.size() < fewest || (times.size() < most && Clock::now() - start < budget)) {
    before();
    const Clock::time_point began = Clock::now();
    run();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - began).count());
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::ranges::nth_element(times, middle);
  return *middle;
}

template <typename Run>
double median_microseconds(std::chrono::microseconds budget, const Run& run) {
  return median_microseconds(budget, run, [] {});
}

/// Times the kernels of one layer for inputs of shape `input`; `before` runs before each,
/// uncounted.
[[nodiscard]] std::vector<KernelTime> measure_layer(
    tensor::Engine& engine, const LayerSpec& layer, tensor::Shape input,
    tensor::DataType type = tensor::DataType::f32, const std::function<void()>& before = [] {});

}  // namespace rondo::train

#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

#include <rondo/tensor/engine.hpp>
#include <rondo/train/model_benchmark.hpp>

namespace rondo::train {

/// The median time of run() in microseconds: warmed up, then repeated until it has run for
/// `budget`, at least 5 and at most 200 times.
template <typename Run>
double median_microseconds(std::chrono::microseconds budget, const Run& run) {
  using Clock = std::chrono::steady_clock;
  constexpr std::size_t fewest = 5;
  constexpr std::size_t most = 200;
  for (int warm_up = 0; warm_up < 2; ++warm_up) run();
  std::vector<double> times;
  const Clock::time_point start = Clock::now();
  while (times.size() < fewest || (times.size() < most && Clock::now() - start < budget)) {
    const Clock::time_point before = Clock::now();
    run();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - before).count());
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::ranges::nth_element(times, middle);
  return *middle;
}

/// Times the kernels of one layer for inputs of shape `input`.
[[nodiscard]] std::vector<KernelTime> measure_layer(tensor::Engine& engine, const LayerSpec& layer,
                                                    tensor::Shape input,
                                                    tensor::DataType type = tensor::DataType::f32);

}  // namespace rondo::train

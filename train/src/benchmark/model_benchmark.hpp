#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <rondo/sync/optimizer.hpp>
#include <rondo/tensor/data_type.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/train/executor.hpp>
#include <rondo/train/model_benchmark.hpp>
#include <rondo/train/parameters.hpp>

namespace rondo::train {

/// Benchmarks compute as runs do whose configuration names no other way.
inline constexpr auto usual_convolutions = tensor::ConvolutionAlgorithm::fast;

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

/// The training step that measure_step() times: the Executor's and the optimizer's pass, on memory
/// of its own, without other ranks. Belongs to one thread at a time.
class BenchmarkStep {
 public:
  BenchmarkStep(const Model& model, std::int64_t batch, int threads, tensor::DataType precision,
                const UpdateBenchmark& update = {});

  void run();

 private:
  std::int64_t batch_;
  ParameterLayout layout_;
  std::vector<float> parameters_;
  std::vector<float> gradients_;
  std::vector<float> statistics_;
  std::vector<float> images_;
  std::vector<std::int32_t> labels_;
  tensor::Engine engine_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<sync::Optimizer> optimizer_;
  std::int64_t steps_ = 0;
};

/// The optimizer's pass over all of its parameters, alone.
[[nodiscard]] double update_microseconds(
    sync::Optimizer& optimizer, const std::function<void()>& before = [] {});

}  // namespace rondo::train

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <rondo/tensor/data_type.hpp>
#include <rondo/train/experiment.hpp>
#include <rondo/train/export.hpp>
#include <rondo/train/model.hpp>

namespace rondo::transport {
class Team;
}

namespace rondo::train {

/// One kernel of one layer, run alone again and again: its median time.
struct KernelTime {
  std::string layer = {};      ///< as in the Model; "loss" and the optimizer's name belong to none
  std::string direction = {};  ///< forward, backward, backward_data, backward_weights, update
  std::string implementation = {};  ///< oneDNN's name for it, or "rondo"
  double microseconds = 0.0;
  double gflops = 0.0;  ///< per second; 0 where operations are not what it spends its time on
};

/// The speed that a model's kernels allow on this machine.
struct PrimitiveTimes {
  std::int64_t batch = 0;
  int threads = 0;
  std::vector<KernelTime> kernels = {};

  [[nodiscard]] double microseconds() const noexcept {
    double sum = 0.0;
    for (const KernelTime& kernel : kernels) sum += kernel.microseconds;
    return sum;
  }
  [[nodiscard]] double images_per_second() const noexcept {
    return 1e6 * static_cast<double>(batch) / microseconds();
  }
};

/// In which state the caches are when a kernel begins.
enum class KernelCaches : std::uint8_t {
  warm,  ///< as the same kernel has left them
  cold,  ///< as writing 64 MiB of other memory has left them
};

/// Whose pass ends a step that is timed.
struct UpdateBenchmark {
  Experiment::Optimizer optimizer = {};
  transport::Team* team = nullptr;  ///< lent; shares the pass. Null: the calling thread does all
};

/// Times every kernel of a training step of `model` alone, on memory of its own. With warm caches
/// it is a bound for a step made of them. It contains the convolutions, poolings and fully
/// connected layers of oneDNN; for each batch normalisation the faster of oneDNN's (with its fused
/// ReLU, which has no residual addition: the bound leaves that out) and ours; the loss; and the
/// optimizer's pass. It leaves out what a step adds: packing of weights, the addition of gradients
/// where two readers meet, and memory that other layers have pushed out of the cache.
[[nodiscard]] RONDO_TRAIN_API PrimitiveTimes
measure_primitives(const Model& model, std::int64_t batch, int threads,
                   tensor::DataType precision = tensor::DataType::f32,
                   KernelCaches caches = KernelCaches::warm, const UpdateBenchmark& update = {});

/// A whole training step on one rank.
struct StepTime {
  std::int64_t batch = 0;
  int threads = 0;
  double microseconds = 0.0;  ///< the median of several steps

  [[nodiscard]] double images_per_second() const noexcept {
    return 1e6 * static_cast<double>(batch) / microseconds;
  }
};

/// Times the Executor's training step and the optimizer's pass, without communication or loading.
[[nodiscard]] RONDO_TRAIN_API StepTime measure_step(
    const Model& model, std::int64_t batch, int threads,
    tensor::DataType precision = tensor::DataType::f32, const UpdateBenchmark& update = {});

}  // namespace rondo::train

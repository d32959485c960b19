#pragma once

#include <algorithm>
#include <cstdint>

#include <rondo/tensor/cross_entropy.hpp>

namespace rondo::train {

/// Loss and correct answers summed over some samples.
struct LossSums {
  double loss = 0.0;
  double correct = 0.0;
  double samples = 0.0;

  void add(const tensor::Loss& of_batch, std::int64_t batch_samples) noexcept {
    loss += of_batch.sum;
    correct += static_cast<double>(of_batch.correct);
    samples += static_cast<double>(batch_samples);
  }
  void add(const LossSums& other) noexcept {
    loss += other.loss;
    correct += other.correct;
    samples += other.samples;
  }

  [[nodiscard]] double mean_loss() const noexcept { return loss / std::max(1.0, samples); }
  /// In percent.
  [[nodiscard]] double accuracy() const noexcept {
    return 100.0 * correct / std::max(1.0, samples);
  }
};

}  // namespace rondo::train

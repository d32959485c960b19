#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <rondo/sync/synchronous.hpp>

#include "base/bucket_reduction.hpp"
#include "base/iteration.hpp"
#include "base/model_sums.hpp"
#include "base/statistics_mean.hpp"

namespace rondo::sync {

/// See make_synchronous().
class SynchronousScheme final : public UpdateScheme {
 public:
  SynchronousScheme(Replica replica, std::shared_ptr<Optimizer> optimizer,
                    const SynchronousOptions& options);

  void begin(const Step& step) override;
  void make_ready(std::size_t layer) override;
  void gradients_final(std::size_t layer) override;
  void finish() override;
  void copy_for_evaluation(std::span<float> parameters, std::span<float> statistics) override;
  void flush() override;
  [[nodiscard]] std::vector<std::span<const float>> replicated() const override;
  [[nodiscard]] std::vector<std::byte> save() const override;
  void restore(std::span<const std::byte> state) override;
  [[nodiscard]] SchemeCounters counters() const noexcept override;

 private:
  [[nodiscard]] double gradient_scale();

  Replica replica_;
  std::shared_ptr<Optimizer> optimizer_;
  Iteration iteration_;
  BucketReduction buckets_;
  double clip_norm_;
  ModelSums sums_;
  StatisticsMean statistics_mean_;
  SchemeCounters counters_;
};

}  // namespace rondo::sync

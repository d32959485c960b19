#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <rondo/sync/lazy.hpp>

#include "base/bucket_reduction.hpp"
#include "base/iteration.hpp"
#include "base/statistics_mean.hpp"
#include "schemes/lazy_gradients.hpp"

namespace rondo::sync {

/// See make_lazy().
class LazyScheme final : public UpdateScheme {
 public:
  LazyScheme(Replica replica, std::shared_ptr<Optimizer> optimizer, const LazyOptions& options);

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
  /// The iterations whose gradients the lazy layers have not been updated by.
  struct Window {
    std::int64_t iterations = 0;
    std::int64_t samples = 0;    ///< on all ranks
    std::int64_t last_step = 0;  ///< and its learning rate
    double learning_rate = 0.0;

    void add(const Step& step);
    /// The update by the sum of its gradients.
    [[nodiscard]] Update update() const;
  };

  [[nodiscard]] bool closes() const noexcept {
    return window_.iterations > 0 && window_.iterations == interval_;
  }
  [[nodiscard]] std::span<float> lazy_part(std::span<float> values) const;
  LazyWindow end_window();
  void apply_window();

  Replica replica_;
  std::shared_ptr<Optimizer> optimizer_;
  LazyOptions options_;
  Iteration iteration_;
  BucketReduction buckets_;  // of the layers that are not lazy
  LazyGradients lazy_;
  StatisticsMean statistics_mean_;
  std::int64_t interval_ = 1;
  Window window_;
  SchemeCounters counters_;
};

}  // namespace rondo::sync

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <rondo/sync/synchronous.hpp>
#include <rondo/transport/request.hpp>

#include "replica/iteration.hpp"
#include "replica/statistics_mean.hpp"
#include "synchronous/bucket_plan.hpp"

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
  /// How far a bucket is within the iteration.
  struct Progress {
    std::size_t missing = 0;  ///< layers that are not final yet
    transport::Request request = {};
  };

  void post_complete_buckets();
  void update(const Bucket& bucket);

  Replica replica_;
  std::shared_ptr<Optimizer> optimizer_;
  std::vector<Bucket> buckets_;         // in the order of posting
  std::vector<std::size_t> bucket_of_;  // by layer
  Iteration iteration_;
  std::vector<Progress> progress_;  // by bucket; requests end before the arrays do
  std::size_t posted_ = 0;          // buckets
  StatisticsMean statistics_mean_;
  SchemeCounters counters_;
};

}  // namespace rondo::sync

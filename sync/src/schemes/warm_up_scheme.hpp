#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <rondo/sync/warm_up.hpp>

namespace rondo::sync {

/// See make_warm_up().
class WarmUpScheme final : public UpdateScheme {
 public:
  WarmUpScheme(std::unique_ptr<UpdateScheme> first, std::unique_ptr<UpdateScheme> then,
               std::int64_t steps);

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
  [[nodiscard]] std::optional<Pace> pace() const noexcept override;
  [[nodiscard]] bool wants_inner_sums() const noexcept override {
    return active().wants_inner_sums();
  }

 private:
  [[nodiscard]] bool warm() const noexcept { return first_ == nullptr; }
  [[nodiscard]] UpdateScheme& active() noexcept { return warm() ? *then_ : *first_; }
  [[nodiscard]] const UpdateScheme& active() const noexcept { return warm() ? *then_ : *first_; }
  void leave_first();

  std::unique_ptr<UpdateScheme> first_;  // null once `then_` has taken over
  std::unique_ptr<UpdateScheme> then_;
  std::int64_t steps_;
  std::int64_t done_ = 0;    // iterations of first_
  SchemeCounters of_first_;  // what it had counted at its end
};

}  // namespace rondo::sync

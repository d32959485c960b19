#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <rondo/sync/hierarchical.hpp>

#include "base/iteration.hpp"
#include "base/model_sums.hpp"
#include "schemes/averaging_place.hpp"
#include "schemes/averaging_schedule.hpp"
#include "schemes/common_model.hpp"
#include "schemes/packed_mean.hpp"

namespace rondo::sync {

/// See make_k_step(), which is the case without levels, and make_hierarchical().
class AveragingScheme final : public UpdateScheme {
 public:
  /// `name` is for messages, and outlives the scheme.
  AveragingScheme(std::string_view name, Replica replica, std::shared_ptr<Optimizer> optimizer,
                  const HierarchicalOptions& options);

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
  [[nodiscard]] bool wants_inner_sums() const noexcept override { return true; }

 private:
  /// How the mean displacement enters the common model.
  enum class Ending : std::uint8_t { with_momentum, plain };

  [[nodiscard]] bool is_alone() const noexcept;
  [[nodiscard]] float weight() const noexcept;
  void step_locally();
  void reduce(transport::Communicator& group);
  void average_locally(transport::Communicator& group);
  void end_round(Ending ending);
  void advance(Ending ending);
  void pack();
  void take_over_the_rest();

  std::string_view name_;
  Replica replica_;
  transport::Communicator& outer_;
  std::shared_ptr<Optimizer> optimizer_;
  LocalState local_state_;
  double clip_norm_;
  ModelSums sums_;
  std::function<void(const Round&)> on_round_;
  AveragingSchedule schedule_;
  CommonModel model_;
  PackedMean mean_;
  Iteration iteration_;
  AveragingPlace place_;
  SchemeCounters counters_;
};

}  // namespace rondo::sync

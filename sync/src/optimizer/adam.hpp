#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <rondo/sync/optimizer.hpp>

#include "optimizer/adam_kernel.hpp"
#include "optimizer/decay_ranges.hpp"
#include "optimizer/optimizer_state.hpp"

namespace rondo::sync {

/// Where the weight decay goes: into the gradient (Adam), or straight to the weights (AdamW).
enum class WeightDecay : std::uint8_t { in_gradient, apart };

/// See make_adam() and make_adamw().
class Adam final : public Optimizer {
 public:
  /// `name` is that of the saved state and of errors, and outlives this object.
  Adam(std::string_view name, std::size_t size, const AdamOptions& options, WeightDecay decay,
       transport::Team* team);

  void update(std::size_t offset, std::span<float> parameters, std::span<const float> gradients,
              const Update& update) override;
  [[nodiscard]] std::size_t size() const noexcept override { return state_.size(); }
  [[nodiscard]] bool ignores_scale() const noexcept override { return true; }
  [[nodiscard]] std::span<float> state() noexcept override { return state_.values(); }
  void keep_state_in(std::span<float> memory) override { state_.keep_in(memory); }
  [[nodiscard]] std::vector<std::byte> save() const override { return state_.save(); }
  void restore(std::span<const std::byte> state) override { state_.restore(state); }

 private:
  [[nodiscard]] AdamFactors factors(const Update& update, double weight_decay) const;

  std::string_view name_;
  AdamOptions options_;
  WeightDecay decay_;
  DecayRanges decay_ranges_;
  transport::Team* team_;
  AdamKernel kernel_;
  OptimizerState state_;  // m, v
};

}  // namespace rondo::sync

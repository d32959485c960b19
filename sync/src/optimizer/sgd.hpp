#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <rondo/sync/optimizer.hpp>

#include "optimizer/decay_ranges.hpp"
#include "optimizer/optimizer_state.hpp"
#include "optimizer/sgd_kernel.hpp"

namespace rondo::sync {

/// See make_sgd(). The velocity is all its state.
class Sgd final : public Optimizer {
 public:
  Sgd(std::size_t size, const SgdOptions& options, transport::Team* team);

  void update(std::size_t offset, std::span<float> parameters, std::span<const float> gradients,
              const Update& update) override;
  [[nodiscard]] std::size_t size() const noexcept override { return state_.size(); }
  [[nodiscard]] bool ignores_scale() const noexcept override { return false; }
  [[nodiscard]] std::span<float> state() noexcept override { return state_.values(); }
  void keep_state_in(std::span<float> memory) override { state_.keep_in(memory); }
  [[nodiscard]] std::vector<std::byte> save() const override { return state_.save(); }
  void restore(std::span<const std::byte> state) override { state_.restore(state); }

 private:
  SgdOptions options_;
  DecayRanges decay_ranges_;
  transport::Team* team_;
  SgdKernel kernel_;
  OptimizerState state_;  // the velocity
};

}  // namespace rondo::sync

// SGD with momentum: one fused pass over parameters, velocity and gradients.

#include "optimizer/flat_optimizer.hpp"
#include "optimizer/kernels.hpp"

namespace rondo::sync {
namespace {

/// The velocity is all its state.
class Sgd final : public FlatOptimizer {
 public:
  Sgd(std::size_t size, const SgdOptions& options, transport::Team* team)
      : FlatOptimizer("sgd", size, 1, options.undecayed, team),
        momentum_(options.momentum),
        weight_decay_(options.weight_decay),
        kernel_(options.nesterov ? runnable_kernels().back()->nesterov
                                 : runnable_kernels().back()->sgd) {
    check_momentum_and_decay(momentum_, weight_decay_);
  }

  void update(std::size_t offset, std::span<float> parameters, std::span<const float> gradients,
              const Update& update) override {
    check_update(offset, parameters, gradients);
    const SgdFactors decayed{update.gradient_scale, momentum_, weight_decay_ * update.decay_scale,
                             static_cast<float>(update.learning_rate)};
    SgdFactors undecayed = decayed;
    undecayed.decay = 0.0F;
    float* const velocity = array(0, offset);
    for_each_range(
        offset, parameters.size(), [&](std::size_t first, std::size_t count, bool decays) {
          kernel_({parameters.data() + first, velocity + first, gradients.data() + first}, count,
                  decays ? decayed : undecayed);
        });
  }

  [[nodiscard]] bool ignores_scale() const noexcept override { return false; }

 private:
  float momentum_;
  float weight_decay_;
  decltype(UpdateKernels::sgd) kernel_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(std::size_t size, const SgdOptions& options,
                                    transport::Team* team) {
  return std::make_unique<Sgd>(size, options, team);
}

}  // namespace rondo::sync

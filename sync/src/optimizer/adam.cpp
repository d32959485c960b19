// Adam and AdamW, which differ in where the weight decay goes. The factors of an update are worked
// out in double and rounded once; the pass over the arrays is in fp32.

#include <cmath>
#include <string>

#include "optimizer/flat_optimizer.hpp"
#include "optimizer/kernels.hpp"

namespace rondo::sync {
namespace {

/// Where the weight decay goes: into the gradient (Adam), or straight to the weights (AdamW).
enum class WeightDecay : std::uint8_t { in_gradient, apart };

/// By repeated squaring: the same bits from every version of the C library.
double power(double base, std::int64_t exponent) {
  double result = 1.0;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) result *= base;
    base *= base;
  }
  return result;
}

/// The state is m, then v.
class Adam final : public FlatOptimizer {
 public:
  Adam(std::string_view name, std::size_t size, const AdamOptions& options, WeightDecay decay,
       transport::Team* team)
      : FlatOptimizer(name, size, 2, options.undecayed, team),
        options_(options),
        decay_(decay),
        kernel_(runnable_kernels().back()->adam) {
    const auto is_beta = [](double value) { return value >= 0.0 && value < 1.0; };
    if (!is_beta(options.beta1) || !is_beta(options.beta2)) {
      refuse("beta1 and beta2 must be in [0, 1), not " + std::to_string(options.beta1) + " and " +
             std::to_string(options.beta2));
    }
    if (!(options.epsilon >= 0.0) || !(options.weight_decay >= 0.0)) {
      refuse("epsilon and weight_decay must not be negative");
    }
  }

  void update(std::size_t offset, std::span<float> parameters, std::span<const float> gradients,
              const Update& update) override {
    check_update(offset, parameters, gradients);
    const AdamFactors decayed =
        factors(update, options_.weight_decay * static_cast<double>(update.decay_scale));
    const AdamFactors undecayed = factors(update, 0.0);
    float* const m = array(0, offset);
    float* const v = array(1, offset);
    for_each_range(
        offset, parameters.size(), [&](std::size_t first, std::size_t count, bool decays) {
          kernel_({parameters.data() + first, m + first, v + first, gradients.data() + first},
                  count, decays ? decayed : undecayed);
        });
  }

  [[nodiscard]] bool ignores_scale() const noexcept override { return true; }

 private:
  [[nodiscard]] AdamFactors factors(const Update& update, double weight_decay) const {
    if (update.index < 0) refuse("there is no update " + std::to_string(update.index));
    const double beta1 = options_.beta1;
    const double beta2 = options_.beta2;
    const bool apart = decay_ == WeightDecay::apart;
    const std::int64_t t = update.index + 1;
    return {.scale = update.gradient_scale,
            .decay = apart ? 0.0F : static_cast<float>(weight_decay),
            .shrink = apart ? static_cast<float>(1.0 - update.learning_rate * weight_decay) : 1.0F,
            .beta1 = static_cast<float>(beta1),
            .rest1 = static_cast<float>(1.0 - beta1),
            .beta2 = static_cast<float>(beta2),
            .rest2 = static_cast<float>(1.0 - beta2),
            .correction = static_cast<float>(1.0 / std::sqrt(1.0 - power(beta2, t))),
            .epsilon = static_cast<float>(options_.epsilon),
            .rate = static_cast<float>(update.learning_rate / (1.0 - power(beta1, t)))};
  }

  AdamOptions options_;
  WeightDecay decay_;
  decltype(UpdateKernels::adam) kernel_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adam(std::size_t size, const AdamOptions& options,
                                     transport::Team* team) {
  return std::make_unique<Adam>("adam", size, options, WeightDecay::in_gradient, team);
}

std::unique_ptr<Optimizer> make_adamw(std::size_t size, const AdamOptions& options,
                                      transport::Team* team) {
  return std::make_unique<Adam>("adamw", size, options, WeightDecay::apart, team);
}

}  // namespace rondo::sync

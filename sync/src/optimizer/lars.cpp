// LARS: SGD whose factors differ from one weight array to the next. The norms of an array are taken
// first, then its pass is that of SGD, so that without weights both agree bit for bit.

#include <algorithm>
#include <cmath>
#include <string>

#include "flat/flat.hpp"
#include "optimizer/flat_optimizer.hpp"
#include "optimizer/kernels.hpp"

namespace rondo::sync {
namespace {

/// The velocity is all its state.
class Lars final : public FlatOptimizer {
 public:
  Lars(std::size_t size, const LarsOptions& options, transport::Team* team)
      : FlatOptimizer("lars", size, 1, options.undecayed, team),
        options_(options),
        kernel_(options.nesterov ? runnable_kernels().back()->nesterov
                                 : runnable_kernels().back()->sgd) {
    if (!(options.trust_coefficient > 0.0)) {
      refuse("trust_coefficient must be above 0, not " + std::to_string(options.trust_coefficient));
    }
    check_momentum_and_decay(options.momentum, options.weight_decay);
    check_ranges("weights", options.weights);
  }

  void update(std::size_t offset, std::span<float> parameters, std::span<const float> gradients,
              const Update& update) override;

  [[nodiscard]] bool ignores_scale() const noexcept override { return !options_.weights.empty(); }
  [[nodiscard]] bool is_elementwise() const noexcept override { return options_.weights.empty(); }

 private:
  /// The range of one update, and where it lies in the flat array.
  struct Given {
    std::size_t offset;
    std::span<float> parameters;
    std::span<const float> gradients;
  };

  [[nodiscard]] double trust_ratio(std::span<const float> weights, std::span<const float> gradients,
                                   const Update& update) const;
  void update_part(const Given& given, std::size_t first, std::size_t end, double ratio,
                   const Update& update);

  LarsOptions options_;
  decltype(UpdateKernels::sgd) kernel_;
};

double Lars::trust_ratio(std::span<const float> weights, std::span<const float> gradients,
                         const Update& update) const {
  const double weight_norm = std::sqrt(flat::dot(weights, weights));
  const double gradient_norm = std::abs(static_cast<double>(update.gradient_scale)) *
                               std::sqrt(flat::dot(gradients, gradients));
  if (weight_norm == 0.0 || gradient_norm == 0.0) return 1.0;
  const double decay = static_cast<double>(options_.weight_decay * update.decay_scale);
  return options_.trust_coefficient * weight_norm / (gradient_norm + decay * weight_norm);
}

// Elements [first, end) of the flat array.
void Lars::update_part(const Given& given, std::size_t first, std::size_t end, double ratio,
                       const Update& update) {
  const auto scaled = [ratio](float factor) {
    return static_cast<float>(ratio * static_cast<double>(factor));
  };
  const SgdFactors decayed{scaled(update.gradient_scale), options_.momentum,
                           scaled(options_.weight_decay * update.decay_scale),
                           static_cast<float>(update.learning_rate)};
  SgdFactors undecayed = decayed;
  undecayed.decay = 0.0F;
  float* const parameters = given.parameters.data() + (first - given.offset);
  const float* const gradients = given.gradients.data() + (first - given.offset);
  float* const velocity = array(0, first);
  for_each_range(first, end - first, [&](std::size_t from, std::size_t count, bool decays) {
    kernel_({parameters + from, velocity + from, gradients + from}, count,
            decays ? decayed : undecayed);
  });
}

// Weight arrays and what lies between them, in their order.
void Lars::update(std::size_t offset, std::span<float> parameters, std::span<const float> gradients,
                  const Update& update) {
  check_update(offset, parameters, gradients);
  const Given given{offset, parameters, gradients};
  const std::size_t end = offset + parameters.size();
  std::size_t at = offset;
  auto weights =
      std::ranges::upper_bound(options_.weights, offset, {},
                               [](const ElementRange& each) { return each.offset + each.size; });
  for (; weights != options_.weights.end() && weights->offset < end; ++weights) {
    const std::size_t end_of_weights = weights->offset + weights->size;
    if (weights->offset < offset || end_of_weights > end) {
      refuse("an update of elements " + std::to_string(offset) + " to " + std::to_string(end) +
             " cuts the weights from " + std::to_string(weights->offset) + " to " +
             std::to_string(end_of_weights) + ", whose norm it needs");
    }
    update_part(given, at, weights->offset, 1.0, update);
    const std::size_t first = weights->offset - offset;
    const double ratio = trust_ratio(parameters.subspan(first, weights->size),
                                     gradients.subspan(first, weights->size), update);
    update_part(given, weights->offset, end_of_weights, ratio, update);
    at = end_of_weights;
  }
  update_part(given, at, end, 1.0, update);
}

}  // namespace

std::unique_ptr<Optimizer> make_lars(std::size_t size, const LarsOptions& options,
                                     transport::Team* team) {
  return std::make_unique<Lars>(size, options, team);
}

}  // namespace rondo::sync

#include "optimizer/adam.hpp"

#include <cmath>
#include <stdexcept>
#include <string>

#include "flat/parts.hpp"
#include "optimizer/check_update.hpp"

namespace rondo::sync {
namespace {

constexpr std::uint32_t state_version = 1;

const AdamOptions& checked(std::string_view name, const AdamOptions& options) {
  const auto is_beta = [](double value) { return value >= 0.0 && value < 1.0; };
  if (!is_beta(options.beta1) || !is_beta(options.beta2)) {
    throw std::invalid_argument(std::string(name) + ": beta1 and beta2 must be in [0, 1), not " +
                                std::to_string(options.beta1) + " and " +
                                std::to_string(options.beta2));
  }
  if (!(options.epsilon >= 0.0) || !(options.weight_decay >= 0.0)) {
    throw std::invalid_argument(std::string(name) +
                                ": epsilon and weight_decay must not be negative");
  }
  return options;
}

/// By repeated squaring: the same bits from every version of the C library.
double power(double base, std::int64_t exponent) {
  double result = 1.0;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) result *= base;
    base *= base;
  }
  return result;
}

}  // namespace

Adam::Adam(std::string_view name, std::size_t size, const AdamOptions& options, WeightDecay decay,
           transport::Team* team)
    : name_(name),
      options_(checked(name, options)),
      decay_(decay),
      decay_ranges_(name, options.undecayed, size),
      team_(team),
      kernel_(adam_variants().back().kernel),
      state_(name, state_version, size, 2) {}

AdamFactors Adam::factors(const Update& update, double weight_decay) const {
  if (update.index < 0) {
    throw std::invalid_argument(std::string(name_) + ": there is no update " +
                                std::to_string(update.index));
  }
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

void Adam::update(std::size_t offset, std::span<float> parameters, std::span<const float> gradients,
                  const Update& update) {
  check_update(name_, offset, parameters, gradients, size());
  const AdamFactors decayed =
      factors(update, options_.weight_decay * static_cast<double>(update.decay_scale));
  const AdamFactors undecayed = factors(update, 0.0);
  float* const m = state_.array(0).data() + offset;
  float* const v = state_.array(1).data() + offset;
  flat::for_each_part(team_, parameters.size(), [&](std::size_t part, std::size_t size) {
    decay_ranges_.for_each_piece(
        offset + part, size, [&](std::size_t in_part, std::size_t count, bool decays) {
          const std::size_t first = part + in_part;
          kernel_({parameters.data() + first, m + first, v + first, gradients.data() + first},
                  count, decays ? decayed : undecayed);
        });
  });
}

std::unique_ptr<Optimizer> make_adam(std::size_t size, const AdamOptions& options,
                                     transport::Team* team) {
  return std::make_unique<Adam>("adam", size, options, WeightDecay::in_gradient, team);
}

std::unique_ptr<Optimizer> make_adamw(std::size_t size, const AdamOptions& options,
                                      transport::Team* team) {
  return std::make_unique<Adam>("adamw", size, options, WeightDecay::apart, team);
}

}  // namespace rondo::sync

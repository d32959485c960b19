#include "schemes/common_model.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "flat/flat.hpp"

namespace rondo::sync {
namespace {

ReductionMomentum checked(std::string_view scheme, const ReductionMomentum& momentum) {
  const std::string name(scheme);
  if (!(momentum.mu >= 0.0F && momentum.mu < 1.0F)) {
    throw std::invalid_argument(name + ": a reduction momentum of " + std::to_string(momentum.mu) +
                                " is not in [0, 1)");
  }
  if (!(momentum.outer_rate > 0.0F)) {
    throw std::invalid_argument(name + ": an outer rate of " + std::to_string(momentum.outer_rate) +
                                " is not positive");
  }
  if (momentum.kind != MomentumKind::diloco && momentum.outer_rate != 1.0F) {
    throw std::invalid_argument(name + ": only diloco has an outer rate, this momentum takes 1");
  }
  return momentum;
}

}  // namespace

CommonModel::CommonModel(std::string_view scheme, const ReductionMomentum& momentum,
                         std::size_t size)
    : momentum_(checked(scheme, momentum)),
      parameters_(size, 0.0F),
      velocity_(momentum.mu == 0.0F ? 0 : size, 0.0F) {}

void CommonModel::take(std::span<const float> parameters) {
  std::ranges::copy(parameters, parameters_.begin());
  round_rates_ = 0.0;
}

void CommonModel::add(std::span<const float> displacement) {
  flat::add(parameters_, displacement);
  round_rates_ = 0.0;
}

// How much of V goes on. slowmo's momentum is u = -V / (sum of a round's rates): where that sum has
// changed, V changes with it.
float CommonModel::carried_over() noexcept {
  double ratio = 1.0;
  if (momentum_.kind == MomentumKind::slowmo) {
    if (last_rates_ != 0.0) ratio = round_rates_ / last_rates_;
    last_rates_ = round_rates_;
  }
  return static_cast<float>(static_cast<double>(momentum_.mu) * ratio);
}

void CommonModel::advance(std::span<float> displacement) {
  const bool follows_rates = momentum_.kind == MomentumKind::slowmo && !velocity_.empty();
  if (follows_rates && round_rates_ == 0.0) return add(displacement);  // u * 0, and u stays
  const float mu = carried_over();
  round_rates_ = 0.0;
  if (!velocity_.empty()) {
    flat::sum_scaled(velocity_, displacement, mu, velocity_);
    const bool looks_ahead =
        momentum_.kind == MomentumKind::nesterov || momentum_.kind == MomentumKind::diloco;
    if (!looks_ahead) return add(velocity_);
    flat::add_scaled(displacement, mu, velocity_);
  }
  flat::add_scaled(parameters_, momentum_.outer_rate, displacement);
}

void CommonModel::write(ByteWriter& writer) const {
  writer.put_array(std::span<const float>(parameters_));
  writer.put_array(std::span<const float>(velocity_));
  writer.put(round_rates_);
  writer.put(last_rates_);
}

void CommonModel::read(ByteReader& reader) {
  reader.get_array(std::span(parameters_));
  reader.get_array(std::span(velocity_));
  round_rates_ = reader.get<double>();
  last_rates_ = reader.get<double>();
}

}  // namespace rondo::sync

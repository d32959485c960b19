// When averages are due, and what they do to the model that all ranks have in common.

#include "schemes/averaging.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include <rondo/sync/scheme_base.hpp>
#include <rondo/transport/communicator.hpp>

#include "flat/flat.hpp"

namespace rondo::sync {
namespace {

void check_period(const std::string& what, std::int64_t period, std::int64_t faster) {
  if (period < 1) {
    throw std::invalid_argument(what + " is " + std::to_string(period) + "; it is at least 1");
  }
  if (period % faster != 0) {
    throw std::invalid_argument(what + " is " + std::to_string(period) +
                                ", which is no multiple of the faster level's " +
                                std::to_string(faster));
  }
}

void check_group(const std::string& where, int size, int slower) {
  if (size <= slower) return;
  throw std::invalid_argument(where + " has a group of " + std::to_string(size) +
                              " ranks, which does not fit into the next slower one of " +
                              std::to_string(slower));
}

ReductionMomentum checked_momentum(std::string_view scheme, const ReductionMomentum& momentum) {
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

AveragingSchedule::AveragingSchedule(std::string_view scheme, std::int64_t period,
                                     const std::vector<AveragingLevel>& levels,
                                     const transport::Communicator& outer)
    : period_(period), levels_(levels) {
  const std::string name(scheme);
  std::int64_t faster = 1;
  for (std::size_t i = 0; i < levels_.size(); ++i) {
    const std::string level = name + ": level " + std::to_string(i);
    if (levels_[i].group == nullptr) throw std::invalid_argument(level + " has no group");
    check_period(level + "'s period", levels_[i].period, faster);
    const bool last = i + 1 == levels_.size();
    if (!last && levels_[i + 1].group == nullptr) continue;  // found in the next turn
    check_group(level, levels_[i].group->size(),
                last ? outer.size() : levels_[i + 1].group->size());
    faster = levels_[i].period;
  }
  check_period(name + ": the global period", period_, faster);
}

// Each level's period is a multiple of the first one's.
bool AveragingSchedule::is_level_due_after(std::int64_t steps) const noexcept {
  return !levels_.empty() && steps % levels_.front().period == 0;
}

transport::Communicator* AveragingSchedule::group_due_after(std::int64_t steps) const noexcept {
  for (std::size_t i = levels_.size(); i-- > 0;) {
    if (steps % levels_[i].period != 0) continue;
    return levels_[i].group->size() > 1 ? levels_[i].group : nullptr;
  }
  return nullptr;
}

CommonModel::CommonModel(std::string_view scheme, const ReductionMomentum& momentum,
                         std::size_t size)
    : momentum_(checked_momentum(scheme, momentum)),
      parameters_(size, 0.0F),
      velocity_(momentum.mu == 0.0F ? 0 : size, 0.0F) {}

void CommonModel::begin_round(std::span<const float> parameters) {
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
  if (outer_) {
    outer_->update(outer_offset_, parameters_, displacement, outer_update());
    ++outer_steps_;
    round_rates_ = 0.0;
    return;
  }
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

CommonModel CommonModel::advanced(std::span<const float> displacement) const {
  CommonModel ahead = *this;
  if (outer_) {
    outer_->preview(outer_offset_, ahead.parameters_, displacement, outer_update());
  } else {
    std::vector<float> used_up(displacement.begin(), displacement.end());
    ahead.advance(used_up);
  }
  return ahead;
}

void CommonModel::write(ByteWriter& writer) const {
  writer.put_array(std::span<const float>(parameters_));
  writer.put_array(std::span<const float>(velocity_));
  writer.put(round_rates_);
  writer.put(last_rates_);
  writer.put(outer_steps_);
}

void CommonModel::read(ByteReader& reader) {
  reader.get_array(std::span(parameters_));
  reader.get_array(std::span(velocity_));
  round_rates_ = reader.get<double>();
  last_rates_ = reader.get<double>();
  outer_steps_ = reader.get<std::int64_t>();
}

}  // namespace rondo::sync

#include "trainer/scheme_makers.hpp"

#include <string>

#include <rondo/sync/hierarchical.hpp>

namespace rondo::train {
namespace {

sync::MomentumKind momentum_kind_of(const std::string& name) {
  if (name == "classical") return sync::MomentumKind::classical;
  if (name == "nesterov") return sync::MomentumKind::nesterov;
  if (name == "slowmo") return sync::MomentumKind::slowmo;
  if (name == "diloco") return sync::MomentumKind::diloco;
  refuse_choice("update.reduction_momentum_kind", name, "classical, nesterov, slowmo, diloco");
}

sync::LocalState local_state_of(const std::string& name) {
  if (name == "keep") return sync::LocalState::keep;
  if (name == "average") return sync::LocalState::average;
  if (name == "reset") return sync::LocalState::reset;
  refuse_choice("update.optimizer_state", name, "keep, average, reset");
}

}  // namespace

// K-step averaging is hierarchical averaging without levels.
Scheme make_averaging(const Experiment& experiment, SchemeParts& parts,
                      const SharedOptimizer& optimizer) {
  const Experiment::Update& update = experiment.update;
  sync::HierarchicalOptions options{
      .period = update.period,
      .levels = parts.levels,
      .momentum = {.kind = momentum_kind_of(update.reduction_momentum_kind),
                   .mu = static_cast<float>(update.reduction_momentum),
                   .outer_rate = static_cast<float>(update.outer_rate)},
      .local_state = local_state_of(update.optimizer_state),
      .clip_norm = experiment.optimizer.clip_norm};
  if (Traces* const traces = parts.traces) {
    options.on_round = [traces](const sync::Round& round) { traces->rounds.push_back(round); };
  }
  return sync::make_hierarchical(parts.replica, optimizer, options);
}

}  // namespace rondo::train

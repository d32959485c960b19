// The schemes k_step and hierarchical from [update]: which ranks average with which, and how often.

#include "schemes/averaging.hpp"

#include <cstddef>
#include <map>
#include <string>

#include <rondo/sync/hierarchical.hpp>

#include "schemes/make_scheme.hpp"

namespace rondo::train {
namespace {

std::vector<int> nodes_of(std::span<const transport::RankInfo> ranks) {
  std::vector<int> groups;
  for (const transport::RankInfo& rank : ranks) groups.push_back(rank.node);
  return groups;
}

std::vector<int> consecutive(std::size_t ranks, std::int64_t group) {
  std::vector<int> groups;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    groups.push_back(static_cast<int>(static_cast<std::int64_t>(rank) / group));
  }
  return groups;
}

void expect_nested(const RankGroups& inner, const RankGroups& outer) {
  std::map<int, int> home;  // of each inner group
  for (std::size_t rank = 0; rank < inner.group_of.size(); ++rank) {
    const auto [entry, is_new] = home.try_emplace(inner.group_of[rank], outer.group_of[rank]);
    if (entry->second == outer.group_of[rank]) continue;
    throw ConfigError("update.levels: the groups of period " + std::to_string(outer.period) +
                      " cut through one of period " + std::to_string(inner.period) + ", at rank " +
                      std::to_string(rank) + "; choose a multiple of the smaller group's ranks");
  }
}

}  // namespace

std::vector<RankGroups> rank_groups(const Experiment& experiment,
                                    std::span<const transport::RankInfo> ranks) {
  const Experiment::Update& update = experiment.update;
  std::vector<RankGroups> levels{
      {update.local_period,
       update.group == 0 ? nodes_of(ranks) : consecutive(ranks.size(), update.group)}};
  for (const auto& [period, group] : update.levels) {
    levels.push_back({period, consecutive(ranks.size(), static_cast<std::int64_t>(group))});
    expect_nested(levels[levels.size() - 2], levels.back());
  }
  return levels;
}

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

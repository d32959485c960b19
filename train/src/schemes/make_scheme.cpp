// From [optimizer] and [update] to an optimizer, a learning rate and an update scheme. Every scheme
// has a Maker in the list below; lazy and cyclic, which need more than a few options, have sources
// of their own. The abilities of a scheme are read from its description, never from its name.
//
// For averaging schemes it is also decided here which ranks average with which: by node, or in
// groups of consecutive ranks, each level's groups within those of the next.

#include "schemes/make_scheme.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include <rondo/sync/buckets.hpp>
#include <rondo/sync/hierarchical.hpp>
#include <rondo/sync/lazy.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/sharded.hpp>
#include <rondo/sync/synchronous.hpp>

#include "config/combinations.hpp"

namespace rondo::train {
namespace {

std::vector<int> nodes_of(std::span<const transport::RankInfo> ranks) {
  std::vector<int> groups;
  for (const transport::RankInfo& rank : ranks) groups.push_back(rank.node);
  return groups;
}

std::vector<int> consecutive(std::size_t ranks, std::int64_t ranks_of_group) {
  std::vector<int> groups;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    groups.push_back(static_cast<int>(static_cast<std::int64_t>(rank) / ranks_of_group));
  }
  return groups;
}

// Each averaging group of the faster level must lie in one of the slower one.
void expect_nested(const AveragingGroups& inner, const AveragingGroups& outer) {
  std::map<int, int> home;  // of each inner averaging group
  for (std::size_t rank = 0; rank < inner.group_of.size(); ++rank) {
    const auto [entry, is_new] = home.try_emplace(inner.group_of[rank], outer.group_of[rank]);
    if (entry->second == outer.group_of[rank]) continue;
    throw ConfigError("update.levels: the averaging groups of period " +
                      std::to_string(outer.period) + " cut through one of period " +
                      std::to_string(inner.period) + ", at rank " + std::to_string(rank) +
                      "; choose a multiple of the smaller averaging group's ranks");
  }
}

}  // namespace

std::vector<AveragingGroups> averaging_groups(const Experiment& experiment,
                                              std::span<const transport::RankInfo> ranks) {
  const Experiment::Update& update = experiment.update;
  std::vector<AveragingGroups> levels{
      {update.local_period,
       update.group == 0 ? nodes_of(ranks) : consecutive(ranks.size(), update.group)}};
  for (const auto& [period, group] : update.levels) {
    levels.push_back({period, consecutive(ranks.size(), static_cast<std::int64_t>(group))});
    expect_nested(levels[levels.size() - 2], levels.back());
  }
  return levels;
}

namespace {

// Empty: the period is constant.
sync::PeriodPolicy period_policy_of(const Experiment& experiment, const SchemeParts& parts) {
  const std::int64_t warmup_steps = parts.learning_rate.warmup_steps;
  switch (experiment.update.period_policy) {
    case PeriodChoice::post_local:
      return sync::post_local(parts.local_from_step);
    case PeriodChoice::qsr:
      return sync::qsr(experiment.update.qsr_alpha, warmup_steps,
                       parts.learning_rate.at(warmup_steps));
    case PeriodChoice::adaptive:
      return sync::adaptive();
    case PeriodChoice::constant:
      break;
  }
  return {};
}

// The options that follow from the configuration alone: without levels, policy and outer optimizer.
// With an outer optimizer there is no momentum of another kind.
sync::KStepOptions averaging_options_of(const Experiment& experiment) {
  const Experiment::Update& update = experiment.update;
  sync::ReductionMomentum momentum;
  const bool has_outer = update.outer_optimizer != OuterOptimizer::none;
  if (!has_outer) {
    momentum = {.kind = update.reduction_momentum_kind,
                .mu = static_cast<float>(update.reduction_momentum),
                .outer_rate = static_cast<float>(update.outer_rate)};
  }
  return {.period = update.period,
          .momentum = momentum,
          .local_state = update.optimizer_state,
          .clip_norm = experiment.optimizer.clip_norm,
          .sums_losses = update.period_policy == PeriodChoice::adaptive,
          .outer_learning_rate = has_outer ? update.outer_rate : 1.0,
          .overlap_steps = update.overlap_steps,
          .fragments = update.fragments,
          .average_type = gradient_element_of(experiment)};
}

// Null: the reduction momentum makes the outer steps. Weight decay is that of the inner optimizer.
SharedOptimizer outer_optimizer_of(const Experiment::Update& update, const SchemeParts& parts) {
  const std::size_t size = parts.replica.parameters.size();
  const OuterOptimizer outer = update.outer_optimizer;
  if (outer == OuterOptimizer::none) return nullptr;
  if (outer == OuterOptimizer::adam) {
    // FedAdam's numbers.
    return sync::make_adam(size, {.beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-3}, parts.team);
  }
  return sync::make_sgd(size,
                        {.momentum = static_cast<float>(update.reduction_momentum),
                         .nesterov = outer == OuterOptimizer::nesterov},
                        parts.team);
}

// K-step averaging is hierarchical averaging without levels.
Scheme make_averaging(const Experiment& experiment, SchemeParts& parts,
                      const SharedOptimizer& optimizer) {
  const auto layers = static_cast<std::int64_t>(parts.replica.layers.size());
  if (experiment.update.fragments > layers) {
    throw ConfigError(fmt::format(
        "update.fragments: {} are more than the {} layers of the model that have parameters",
        experiment.update.fragments, layers));
  }
  sync::KStepOptions options = averaging_options_of(experiment);
  options.levels = parts.levels;
  options.period_of = period_policy_of(experiment, parts);
  options.outer_optimizer = outer_optimizer_of(experiment.update, parts);
  if (Traces* const traces = parts.traces) {
    options.on_round = [traces](const sync::Round& round) { traces->rounds.push_back(round); };
  }
  return sync::make_hierarchical(parts.replica, optimizer, options);
}

std::int64_t steps_of(double epochs, std::int64_t steps_per_epoch) {
  constexpr double forever = 0x1p52;  // more steps than any run has, and a number of the type
  return std::llround(std::min(epochs * static_cast<double>(steps_per_epoch), forever));
}

sync::SynchronousOptions synchronous_options_of(const Experiment& experiment) {
  const auto bucket_bytes = static_cast<std::size_t>(experiment.update.bucket_bytes);
  return {.bucket_bytes = bucket_bytes,
          .last_bucket_bytes = sync::BucketLimits::of(bucket_bytes).last_bytes,
          .clip_norm = experiment.optimizer.clip_norm,
          .gradient_type = gradient_element_of(experiment)};
}

Scheme make_synchronous(const Experiment& experiment, SchemeParts& parts,
                        const SharedOptimizer& optimizer) {
  return sync::make_synchronous(parts.replica, optimizer, synchronous_options_of(experiment));
}

// The norm of a layer that ranks of a replica share is known to none of them.
void refuse_parts(const ParameterLayout& layout, std::string_view key) {
  for (const Parameter& parameter : layout.parameters) {
    if (parameter.whole.empty() || parameter.whole == parameter.shape) continue;
    throw ConfigError(
        fmt::format("{}: under update.scheme = \"sharded\" needs all of {}, of which each rank of "
                    "this grid holds a part; set it to 0, or use \"synchronous\"",
                    key, parameter.name));
  }
}

Scheme make_sharded(const Experiment& experiment, SchemeParts& parts,
                    const SharedOptimizer& optimizer) {
  if (experiment.optimizer.clip_norm > 0.0) refuse_parts(*parts.layout, "optimizer.clip_norm");
  return sync::make_sharded(parts.replica, optimizer, synchronous_options_of(experiment));
}

// The memory of the arrays that each scheme makes, and of those that it saves.

UpdateMemory synchronous_memory(const Experiment& experiment, const sync::ReplicaSizes& sizes,
                                const UpdateMemoryParts& /*parts*/) {
  const sync::SynchronousOptions options = synchronous_options_of(experiment);
  return {.scheme = sync::memory_of(sizes, options), .saved = sync::saved_by(sizes, options)};
}

UpdateMemory sharded_memory(const Experiment& experiment, const sync::ReplicaSizes& sizes,
                            const UpdateMemoryParts& /*parts*/) {
  return {.scheme = sync::memory_of(sizes, synchronous_options_of(experiment)),
          .saved = sync::sharded_state(sizes) * sizeof(float)};
}

UpdateMemory lazy_memory(const Experiment& experiment, const sync::ReplicaSizes& sizes,
                         const UpdateMemoryParts& parts) {
  const sync::LazyOptions options = lazy_options_of(experiment, parts.lazy);
  return {.scheme = sync::memory_of(sizes, options), .saved = sync::saved_by(sizes, options)};
}

UpdateMemory averaging_memory(const Experiment& experiment, const sync::ReplicaSizes& sizes,
                              const UpdateMemoryParts& /*parts*/) {
  const sync::KStepOptions options = averaging_options_of(experiment);
  const OuterOptimizer outer = experiment.update.outer_optimizer;
  std::size_t arrays = 0;
  if (outer != OuterOptimizer::none) arrays = outer == OuterOptimizer::adam ? 2 : 1;
  const std::size_t outer_state = arrays * sizes.parameters() * sizeof(float);
  return {.scheme = sync::memory_of(sizes, options) + outer_state,
          .saved = sync::saved_by(sizes, options) + outer_state};
}

UpdateMemory cyclic_memory(const Experiment& /*experiment*/, const sync::ReplicaSizes& sizes,
                           const UpdateMemoryParts& parts) {
  return {.scheme = sync::memory_of_cyclic(sizes, parts.has_store),
          .saved = sync::saved_by_cyclic(sizes)};
}

struct Maker {
  sync::SchemeDescription scheme;
  Scheme (*make)(const Experiment& experiment, SchemeParts& parts,
                 const SharedOptimizer& optimizer);
  /// But for UpdateMemory::optimizer.
  UpdateMemory (*memory)(const Experiment& experiment, const sync::ReplicaSizes& sizes,
                         const UpdateMemoryParts& parts);
};

constexpr std::array makers{
    Maker{sync::synchronous_scheme, make_synchronous, synchronous_memory},
    Maker{sync::sharded_scheme, make_sharded, sharded_memory},
    Maker{sync::lazy_scheme, make_lazy, lazy_memory},
    Maker{sync::k_step_scheme, make_averaging, averaging_memory},
    Maker{sync::hierarchical_scheme, make_averaging, averaging_memory},
    Maker{sync::cyclic_scheme, make_cyclic, cyclic_memory},
};

const Maker& maker_of(const Experiment& experiment) {
  const std::string_view name = scheme_of(experiment.update).name;  // refuses others
  return *std::ranges::find(makers, name, [](const Maker& maker) { return maker.scheme.name; });
}

sync::ReplicaSizes sizes_of(const Experiment& experiment, const UpdateMemoryParts& parts) {
  sync::ReplicaSizes sizes{.statistics = parts.statistics, .replicas = parts.grid.pc};
  for (std::size_t i = 0; i < parts.layout.blocks.size(); ++i) {
    sizes.layers.push_back({parts.layout.blocks[i].size, parts.grid.ranks() / parts.slices[i]});
  }
  sizes.optimizer_state = parts.layout.parameter_count *
                          static_cast<std::size_t>(optimizer_elements(experiment.optimizer));
  return sizes;
}

bool has_warm_up(const Experiment& experiment) {
  return scheme_of(experiment.update).warm_up != sync::WarmUp::pointless &&
         warmup_epochs_of(experiment) > 0.0;
}

}  // namespace

transport::ElementType gradient_element_of(const Experiment& experiment) {
  return experiment.train.reduce_precision == tensor::DataType::bf16 ? transport::ElementType::bf16
                                                                     : transport::ElementType::f32;
}

sync::LearningRate learning_rate_of(const Experiment& experiment, std::int64_t steps_per_epoch,
                                    std::int64_t total_steps) {
  const Experiment::Optimizer& choice = experiment.optimizer;
  sync::LearningRate rate{.base = choice.learning_rate,
                          .final_rate = choice.final_learning_rate,
                          .decay = choice.schedule,
                          .warmup_steps = steps_of(choice.warmup_epochs, steps_per_epoch),
                          .total_steps = total_steps,
                          .factor = choice.factor};
  for (const std::int64_t epoch : choice.milestones) {
    rate.milestones.push_back(epoch * steps_per_epoch);
  }
  return rate;
}

std::int64_t warm_up_steps_of(const Experiment& experiment, std::int64_t steps_per_epoch) {
  return steps_of(warmup_epochs_of(experiment), steps_per_epoch);
}

std::int64_t local_from_step_of(const Experiment& experiment, std::int64_t steps_per_epoch) {
  return steps_of(experiment.update.local_from_epoch, steps_per_epoch);
}

bool needs_whole_batches(const Experiment& experiment) {
  return scheme_of(experiment.update).steps_alone();
}

int optimizer_elements(const Experiment::Optimizer& optimizer) {
  return optimizer.name == OptimizerName::adam || optimizer.name == OptimizerName::adamw ? 2 : 1;
}

bool is_paced(const Experiment& experiment) { return scheme_of(experiment.update).own_pace; }

// These are the model's vectors; weights have two dimensions or four, on a grid as well. Adjacent
// ones become one range, so that few are left.
std::vector<sync::ElementRange> norms_and_biases(const ParameterLayout& layout) {
  std::vector<sync::ElementRange> ranges;
  for (const Parameter& parameter : layout.parameters) {
    if (parameter.shape.size() != 1) continue;
    if (!ranges.empty() && ranges.back().offset + ranges.back().size == parameter.offset) {
      ranges.back().size += parameter.size();
    } else {
      ranges.push_back({parameter.offset, parameter.size()});
    }
  }
  return ranges;
}

std::vector<sync::ElementRange> whole_weights(const ParameterLayout& layout) {
  std::vector<sync::ElementRange> ranges;
  for (const Parameter& parameter : layout.parameters) {
    if (parameter.shape.size() == 1) continue;
    if (!parameter.whole.empty() && parameter.whole != parameter.shape) {
      throw ConfigError("optimizer.name: \"lars\" needs the norm of " + parameter.name +
                        ", of which each rank of this grid holds a part; use sgd, or a grid that "
                        "splits samples and space only, with \"sample\" for fully connected layers "
                        "in [grid.layers]");
    }
    ranges.push_back({parameter.offset, parameter.size()});
  }
  return ranges;
}

std::unique_ptr<sync::Optimizer> make_optimizer(const Experiment::Optimizer& choice,
                                                const ParameterLayout& layout,
                                                transport::Team* team) {
  const std::size_t size = layout.parameter_count;
  std::vector<sync::ElementRange> undecayed;
  // Weight decay pulls weights towards zero; many recipes leave out what only shifts and scales.
  if (!choice.decay_norm_and_bias) undecayed = norms_and_biases(layout);
  const sync::AdamOptions adam{.beta1 = choice.beta1,
                               .beta2 = choice.beta2,
                               .epsilon = choice.epsilon,
                               .weight_decay = choice.weight_decay,
                               .undecayed = undecayed};
  switch (choice.name) {
    case OptimizerName::adam:
      return sync::make_adam(size, adam, team);
    case OptimizerName::adamw:
      return sync::make_adamw(size, adam, team);
    case OptimizerName::lars:
      return sync::make_lars(size,
                             {.trust_coefficient = choice.trust_coefficient,
                              .momentum = static_cast<float>(choice.momentum),
                              .nesterov = choice.nesterov,
                              .weight_decay = static_cast<float>(choice.weight_decay),
                              .weights = whole_weights(layout),
                              .undecayed = undecayed},
                             team);
    case OptimizerName::sgd:
      break;
  }
  return sync::make_sgd(size,
                        {.momentum = static_cast<float>(choice.momentum),
                         .nesterov = choice.nesterov,
                         .weight_decay = static_cast<float>(choice.weight_decay),
                         .undecayed = undecayed},
                        team);
}

Scheme make_scheme(const Experiment& experiment, SchemeParts parts) {
  const SharedOptimizer optimizer = make_optimizer(experiment.optimizer, *parts.layout, parts.team);
  Scheme scheme = maker_of(experiment).make(experiment, parts, optimizer);
  // Also where none of it is left: what such a run saves is restored to one with all of it.
  if (!has_warm_up(experiment)) return scheme;
  // Both share the optimizer, so its momenta go on when the scheme takes over.
  return sync::make_warm_up(make_synchronous(experiment, parts, optimizer), std::move(scheme),
                            parts.warm_up_steps);
}

// The warm-up's scheme is made together with the one that takes over, and saves no more than that.
UpdateMemory memory_of_updates(const Experiment& experiment, const UpdateMemoryParts& parts) {
  const sync::ReplicaSizes sizes = sizes_of(experiment, parts);
  const bool is_divided = scheme_of(experiment.update).divides_optimizer;
  const std::size_t state = is_divided ? sync::sharded_state(sizes) : sizes.optimizer_state;
  UpdateMemory memory = maker_of(experiment).memory(experiment, sizes, parts);
  memory.optimizer = state * sizeof(float);
  if (has_warm_up(experiment)) memory.scheme += synchronous_memory(experiment, sizes, parts).scheme;
  return memory;
}

std::size_t checkpoint_copy(const Experiment& experiment, bool own_scheme, std::size_t parameters,
                            std::size_t statistics) {
  const sync::SchemeDescription& scheme = scheme_of(experiment.update);
  const bool may_differ = scheme.steps_alone() || scheme.windows || own_scheme;
  const std::size_t models = may_differ ? 2 : 1;
  return (models * parameters + 2 * statistics) * sizeof(float);
}

Scheme make_own_scheme(const Experiment& experiment, const SchemeParts& parts,
                       const MakeScheme& make) {
  if (experiment.update.scheme != sync::synchronous_scheme.name) {
    throw ConfigError("update.scheme: a scheme of your own takes its place; leave the key at \"" +
                      std::string(sync::synchronous_scheme.name) + "\"");
  }
  if (experiment.train.reduce_precision != tensor::DataType::f32) {
    throw ConfigError(
        "train.reduce_precision: does not reach the scheme of your own; leave it at \"fp32\"");
  }
  if (experiment.optimizer.clip_norm > 0.0) {
    throw ConfigError(
        "optimizer.clip_norm: does not reach the scheme of your own; leave it at 0, and let the "
        "scheme bound the norm");
  }
  Scheme scheme =
      make(parts.replica, make_optimizer(experiment.optimizer, *parts.layout, parts.team));
  if (scheme == nullptr) throw ConfigError("make_scheme: has made no scheme");
  // A loop for ranks that do not step together exists for cyclic alone.
  if (!scheme->description().own_pace) return scheme;
  throw ConfigError("make_scheme: replicas of " + std::string(scheme->description().name) +
                    " go each at a pace of its own, which the trainer supports for its own "
                    "schemes only");
}

}  // namespace rondo::train

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <rondo/sync/cyclic.hpp>
#include <rondo/sync/hierarchical.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/replica.hpp>
#include <rondo/sync/scheme_memory.hpp>
#include <rondo/sync/update_scheme.hpp>
#include <rondo/train/experiment.hpp>
#include <rondo/train/parameters.hpp>
#include <rondo/train/partition.hpp>
#include <rondo/train/trainer.hpp>
#include <rondo/transport/element.hpp>
#include <rondo/transport/world.hpp>

#include "schemes/cyclic.hpp"
#include "schemes/lazy.hpp"

namespace rondo::transport {
class Team;
}  // namespace rondo::transport

namespace rondo::train {

/// Ranks that average among themselves: a level of hierarchical averaging.
struct AveragingGroups {
  std::int64_t period = 1;
  std::vector<int> group_of = {};  ///< by rank
};

/// The levels that [update] describes, from the fastest on. Throws ConfigError when the averaging
/// groups of one do not lie within those of the next.
[[nodiscard]] std::vector<AveragingGroups> averaging_groups(
    const Experiment& experiment, std::span<const transport::RankInfo> ranks);

/// The learning rate that [optimizer] describes, for a run of so many steps.
[[nodiscard]] sync::LearningRate learning_rate_of(const Experiment& experiment,
                                                  std::int64_t steps_per_epoch,
                                                  std::int64_t total_steps);

/// The steps of the synchronous warm-up before the scheme.
[[nodiscard]] std::int64_t warm_up_steps_of(const Experiment& experiment,
                                            std::int64_t steps_per_epoch);

/// The step from which update.local_from_epoch counts.
[[nodiscard]] std::int64_t local_from_step_of(const Experiment& experiment,
                                              std::int64_t steps_per_epoch);

/// Do an epoch's batches all have to be whole? True of schemes where a rank's own samples weigh
/// by themselves.
[[nodiscard]] bool needs_whole_batches(const Experiment& experiment);

/// Do ranks step each at a pace of its own?
[[nodiscard]] bool is_paced(const Experiment& experiment);

/// Elements that the optimizer which [optimizer] names keeps for each parameter: 1 of "sgd" and
/// "lars", whose momenta are kept without momentum, too, and 2 of "adam" and "adamw".
[[nodiscard]] int optimizer_elements(const Experiment::Optimizer& optimizer);

/// The parameters that optimizer.decay_norm_and_bias is about, of those that a rank holds: biases,
/// and what batch norm learns.
[[nodiscard]] std::vector<sync::ElementRange> norms_and_biases(const ParameterLayout& layout);

/// The other parameters: the weights of each layer. Throws ConfigError when a rank holds a part of
/// them only, where "lars" needs their norms.
[[nodiscard]] std::vector<sync::ElementRange> whole_weights(const ParameterLayout& layout);

/// The optimizer that [optimizer] names, for what a rank holds by `layout`. `team` is lent; null:
/// the calling thread does all. Throws ConfigError when there is no such optimizer, and as
/// whole_weights() does.
[[nodiscard]] std::unique_ptr<sync::Optimizer> make_optimizer(const Experiment::Optimizer& choice,
                                                              const ParameterLayout& layout,
                                                              transport::Team* team);

/// The parts that a scheme is made of, beside [update] and [optimizer].
struct SchemeParts {
  sync::Replica replica = {};
  transport::Team* team = nullptr;
  const ParameterLayout* layout = nullptr;  ///< of `replica`; lent
  std::int64_t warm_up_steps = 0;
  std::int64_t local_from_step = 0;               ///< of averages whose period is post_local
  sync::LearningRate learning_rate = {};          ///< of those whose period is qsr
  LazyPlan lazy = {};                             ///< of lazy
  std::vector<sync::AveragingLevel> levels = {};  ///< of hierarchical
  std::int64_t epoch_samples = 0;                 ///< of cyclic, as the next two
  std::int64_t total_samples = 0;
  std::vector<sync::Turn> script = {};
  Traces* traces = nullptr;  ///< outlives the scheme; null: no traces
};

/// The scheme that [update] names, behind its warm-up, with the optimizer that [optimizer] names.
/// Throws ConfigError when there is none. Some are made by all ranks together.
[[nodiscard]] std::unique_ptr<sync::UpdateScheme> make_scheme(const Experiment& experiment,
                                                              SchemeParts parts);

/// A scheme of the user's own, with the optimizer that [optimizer] names. Throws ConfigError when
/// there is none, when it goes at a pace of its own, and when [update] names another scheme.
[[nodiscard]] std::unique_ptr<sync::UpdateScheme> make_own_scheme(const Experiment& experiment,
                                                                  const SchemeParts& parts,
                                                                  const MakeScheme& make);

/// The facts that give the memory of updates: one rank of a grid, which need not exist.
struct UpdateMemoryParts {
  const ParameterLayout& layout;
  ProcessGrid grid = {};
  std::vector<int> slices = {};  ///< of each block of `layout`: those of slices_in_replica()
  std::size_t statistics = 0;    ///< that the scheme averages: those of `layout`, perhaps more
  LazyPlan lazy = {};            ///< of lazy
  bool has_store = true;         ///< of cyclic: is it the first of its node?
};

/// Bytes that updates take on a rank besides parameters and gradients.
struct UpdateMemory {
  std::size_t optimizer = 0;  ///< its state, of which a rank may have a share only
  std::size_t scheme = 0;     ///< the arrays of the scheme, its warm-up and its outer optimizer
  std::size_t saved = 0;      ///< the most that a checkpoint holds of these two
};
/// Bytes of the copy from which a checkpoint is written, of so many parameters and statistics, but
/// for the state of updates, which is UpdateMemory::saved. The model that was evaluated is in it
/// where it is another one, as it may be under a user's own scheme.
[[nodiscard]] std::size_t checkpoint_copy(const Experiment& experiment, bool own_scheme,
                                          std::size_t parameters, std::size_t statistics);

[[nodiscard]] UpdateMemory memory_of_updates(const Experiment& experiment,
                                             const UpdateMemoryParts& parts);

// From [update] to each scheme's options: what make_scheme() chooses from.

using Scheme = std::unique_ptr<sync::UpdateScheme>;
using SharedOptimizer = std::shared_ptr<sync::Optimizer>;

/// The value of [train] reduce_precision, as schemes want it.
[[nodiscard]] transport::ElementType gradient_element_of(const Experiment& experiment);

[[nodiscard]] sync::LazyOptions lazy_options_of(const Experiment& experiment, const LazyPlan& plan);

[[nodiscard]] Scheme make_lazy(const Experiment& experiment, SchemeParts& parts,
                               const SharedOptimizer& optimizer);

[[nodiscard]] Scheme make_cyclic(const Experiment& experiment, SchemeParts& parts,
                                 const SharedOptimizer& optimizer);

}  // namespace rondo::train

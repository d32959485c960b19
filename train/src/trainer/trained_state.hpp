#pragma once

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/update_scheme.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/train/executor.hpp>
#include <rondo/train/trainer.hpp>
#include <rondo/transport/communicator.hpp>

#include "checkpoint/manifest.hpp"
#include "executor/memory.hpp"
#include "schemes/cyclic.hpp"
#include "schemes/lazy.hpp"
#include "schemes/make_scheme.hpp"
#include "trainer/batch_iterator.hpp"
#include "trainer/grid_membership.hpp"
#include "trainer/prepare.hpp"
#include "trainer/resumed_checkpoint.hpp"
#include "trainer/run_log.hpp"
#include "trainer/run_state.hpp"

namespace rondo::train {

/// A prepared run with all that one rank trains, and trains with. A checkpoint holds its parameters
/// and statistics, what the scheme saves, and how far the run has come.
///
/// Members are declared in the order in which they need each other: the grid before the arrays,
/// whose sizes it says; the account before all that it counts; batches before the executor, which
/// has a plan for each of their sizes.
struct TrainedState : PreparedRun {
  /// Makes arrays and batches. Communicates nothing, so that a rank that fails here leaves no other
  /// waiting. `world` is lent, and so is what pointers in `options` point to.
  TrainedState(transport::World& world, PreparedRun run, TrainerOptions options);

  /// Makes the executor, unless ranks split layers, and the initial values; counts the memory that
  /// others allocate for the run. Communicates nothing.
  void make_executor();
  /// Makes with the other ranks what they share: the executor of a model that is split, averaging
  /// groups and the scheme. Finds the checkpoint to go on from. Collective.
  void join(const RunLog& log);

  /// Is a step left?
  [[nodiscard]] bool trains() const noexcept { return run.step < total_steps; }
  /// Is the run about its losses alone?
  [[nodiscard]] bool sweeps() const noexcept { return static_cast<bool>(options.diverges); }
  /// Does each rank train mini-batches of its own now, at its own pace?
  [[nodiscard]] bool is_paced_now() const noexcept;
  /// Samples that all ranks have trained since the warm-up, as far as this rank's parameters tell.
  [[nodiscard]] std::int64_t paced_samples() const noexcept;
  /// The step to which so many of them come.
  [[nodiscard]] std::int64_t step_at(std::int64_t samples) const noexcept;
  /// Do replicas make this step without waiting for each other?
  [[nodiscard]] bool steps_alone() const;
  [[nodiscard]] std::string scheme_name() const;
  /// Images of a test batch.
  [[nodiscard]] std::int64_t evaluation_batch() const;
  [[nodiscard]] ModelState model_state();

  /// Waits for parameters that the scheme still fetches. Collective.
  void complete_parameters();

  /// A checkpoint's description, but for what the logs have.
  [[nodiscard]] Manifest manifest() const;
  /// Are the optimizer's momenta taken over from the checkpoint of other ranks?
  [[nodiscard]] bool keeps_momenta() const;
  /// Takes over parameters, statistics and what the scheme has saved: those of this rank, or after
  /// a run on other ranks the momenta alone, as join() has taken the rest.
  void restore();

  transport::World& world;
  TrainerOptions options;  ///< join() replaces run_folder by rank 0's
  int threads;
  GridMembership grid;
  ParameterLayout layout;  ///< of what this rank holds
  MemoryAccount account;
  AccountedMemory memory;
  AccountedMemory arena;               ///< the World's
  std::pmr::vector<float> parameters;  ///< these two in the arena
  std::pmr::vector<float> gradients;
  std::pmr::vector<float> statistics;  ///< then SharedStatistics
  BatchIterator batches;
  std::unique_ptr<BatchIterator> own_batches;  ///< where ranks go each at a pace of its own
  tensor::Engine engine;
  std::optional<Executor> executor;
  std::int64_t total_steps;
  std::int64_t warm_up_steps;
  sync::LearningRate learning_rate;
  std::vector<sync::Turn> script;  ///< until the scheme has it
  LazyPlan lazy;
  std::vector<AveragingGroups> levels;
  std::vector<transport::Communicator> level_groups;  ///< one per level
  std::optional<ResumedCheckpoint> resumed;           ///< nothing where the run begins
  Traces traces;
  std::unique_ptr<sync::UpdateScheme> scheme;
  /// How far the run is. The figures of RunRecord::run_state() (seconds, losses, traffic ...) are
  /// here as they were when the run was begun or resumed.
  RunState run;

 private:
  [[nodiscard]] ExecutorOptions executor_options() const;
  void emplace_executor();
  void count_others();
  void read_batches();
  void count_updates();
  [[nodiscard]] UpdateMemory update_memory() const;
  [[nodiscard]] sync::Replica replica();
  void expect_equal_copies();
  void take_weights(const RunLog& log);
  void take_averages();
  void choose_lazy_layers();
  [[nodiscard]] std::int64_t warm_up_left() const;
  void make_update_scheme();
};

}  // namespace rondo::train

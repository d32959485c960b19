#pragma once

#include <cstdint>
#include <exception>
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

#include "checkpoint/writer.hpp"
#include "executor/memory.hpp"
#include "schemes/cyclic.hpp"
#include "schemes/lazy.hpp"
#include "schemes/make_scheme.hpp"
#include "trainer/batch_iterator.hpp"
#include "trainer/evaluated_model.hpp"
#include "trainer/grid_membership.hpp"
#include "trainer/meters.hpp"
#include "trainer/prepare.hpp"
#include "trainer/resumed_checkpoint.hpp"
#include "trainer/run_log.hpp"
#include "trainer/run_state.hpp"
#include "trainer/step_check.hpp"
#include "trainer/step_link.hpp"
#include "trainer/synchronous_meter.hpp"

namespace rondo::train {

/// One rank of a run: everything it owns, and the loops over epochs and steps. train() runs it;
/// tests look at the parameters in between.
class Trainer {
 public:
  /// Makes everything that a step needs but the scheme. Communicates nothing, so that a rank that
  /// fails here leaves no other waiting. `world` and `log` are lent, and so is what pointers in
  /// `options` point to.
  Trainer(transport::World& world, PreparedRun run, TrainerOptions options, RunLog& log);

  /// Makes the scheme with the other ranks. Collective; once, before all that follows.
  void join();

  /// Tells the log what will run.
  void announce() const;

  /// Nothing is left to be trained or evaluated, or the run was asked to stop.
  [[nodiscard]] bool done() const noexcept {
    return stopped_ || (run_.step >= total_steps_ && !run_.epoch_open);
  }
  [[nodiscard]] bool stopped() const noexcept { return stopped_; }
  /// Is a step left?
  [[nodiscard]] bool trains() const noexcept { return run_.step < total_steps_; }
  /// At which step it was, and what was left of it.
  [[nodiscard]] std::string stop_report() const;
  /// Is the run about its losses alone?
  [[nodiscard]] bool sweeps() const noexcept { return static_cast<bool>(options_.diverges); }
  /// Has a sweep ended because training diverges?
  [[nodiscard]] bool diverged() const noexcept { return diverged_; }
  /// Does the run end by max_steps, before its last epoch is complete?
  [[nodiscard]] bool cut_short() const noexcept {
    return total_steps_ < experiment_.train.epochs * batches_.steps();
  }

  /// Trains to the end of the epoch, or of the run, then evaluates, unless it is asked to stop
  /// before. Collective, as are its steps.
  const EpochMetrics& run_epoch();
  /// The metrics of the last epoch that was evaluated.
  [[nodiscard]] const EpochMetrics& last_epoch() const noexcept { return run_.last_epoch; }

  /// Waits until the last checkpoint is complete. Collective.
  void complete_checkpoints();
  /// The run has failed: removes on rank 0 what has been written of one that is not complete.
  void abandon_checkpoint() noexcept;

  /// Adds what the scheme has still pending to the parameters. Collective.
  void finish();

  /// Leaves the model that was evaluated last as model.safetensors in rank 0's run folder, if it
  /// has one. Collective.
  void save_model();
  /// The run goes on, so a file of an earlier part's end is of a model that it leaves behind.
  void remove_model() const;

  /// The summary of the run so far; what the log knows is left to it.
  [[nodiscard]] RunSummary summary(const std::string& reason, bool by_error = false);

  [[nodiscard]] const ParameterLayout& layout() const noexcept { return layout_; }
  [[nodiscard]] std::span<const float> parameters() const noexcept { return parameters_; }

 private:
  /// The test set as the ranks evaluated it together.
  struct Evaluation {
    LossSums sums;
    double seconds = 0.0;  ///< mean over the ranks
    std::string parameter_hash = {};
  };

  /// A checkpoint's state: the run where it is now, or where it was before an evaluation.
  struct Moment {
    RunState state;
    std::uint64_t metrics_bytes = 0;
    std::uint64_t token_trace_bytes = 0;
  };

  [[nodiscard]] Range test_share() const;  // of this rank's replica
  [[nodiscard]] std::int64_t evaluation_batch() const;
  [[nodiscard]] ExecutorOptions executor_options() const;
  [[nodiscard]] sync::Replica replica();
  [[nodiscard]] std::int64_t total_steps() const;
  [[nodiscard]] std::int64_t steps_of_schedule() const;
  void make_averaging_groups();
  [[nodiscard]] ModelState model_state();
  void make_executor();
  void count_others();
  void count_updates();
  [[nodiscard]] UpdateMemory update_memory() const;
  void choose_lazy_layers();
  [[nodiscard]] std::string scheme_name() const;
  [[nodiscard]] StartEvent start_event() const;
  void announce_updates() const;
  void announce_learning_rate() const;

  // Steps that all ranks take together, and those that each takes at its own pace.
  [[nodiscard]] bool is_paced_now() const noexcept;
  void run_steps();
  void run_step();
  void run_paced_steps();
  void run_paced_step();
  [[nodiscard]] std::int64_t paced_samples() const noexcept;
  [[nodiscard]] std::int64_t step_at(std::int64_t paced_samples) const noexcept;
  LossSums compute(BatchIterator& batches, std::int64_t step);
  [[nodiscard]] bool steps_alone() const;
  void exchange_flags(const LossSums& sums, bool alone);
  void finish_step();

  // Checkpoints: trainer_checkpoint.cpp.
  void begin_checkpoints();
  [[nodiscard]] bool keeps_momenta() const;
  [[nodiscard]] std::int64_t warm_up_left() const;
  void set_aside_other_checkpoints();
  void begin_anew();
  void restore();
  void restore_exactly();
  void expect_equal_copies();
  void take_weights();
  void take_averages();
  void restore_averages(const RunState& state);
  [[nodiscard]] RunState run_state();
  void restore_run_state(const RunState& state);
  [[nodiscard]] Moment now();
  void end_step();
  void end_epoch(const std::optional<Moment>& before);
  void save_checkpoint(const Moment& moment);
  void save_checkpoint_of_epoch(const Moment& moment);

  LossSums reduce_losses();
  void report_step();
  void report_traces();
  void report_pushes();
  void report_progress() const;
  Work work_since(const sync::SchemeCounters& before);
  void close_epoch();
  Evaluation evaluate();
  [[nodiscard]] ModelWeights evaluated_weights();
  void complete_parameters();
  void report_broken_images();
  void report_epoch();

  transport::World& world_;
  RunLog& log_;
  TrainerOptions options_;  // join() replaces run_folder by rank 0's
  Experiment experiment_;
  int threads_;
  std::shared_ptr<const Dataset> dataset_;
  DataDigests digests_;
  Model model_;
  GridMembership grid_;
  ParameterLayout layout_;  // of what this rank holds
  MemoryAccount account_;
  AccountedMemory memory_;
  AccountedMemory arena_;               // the World's
  std::pmr::vector<float> parameters_;  // these two in the arena
  std::pmr::vector<float> gradients_;
  std::pmr::vector<float> statistics_;  // then SharedStatistics, as in the copy
  EvaluatedModel evaluated_;
  BatchIterator batches_;
  std::unique_ptr<BatchIterator> own_batches_;  // where ranks go each at a pace of its own
  tensor::Engine engine_;
  std::optional<Executor> executor_;  // made by the replica together where it splits layers
  std::int64_t total_steps_;
  std::int64_t warm_up_steps_;
  sync::LearningRate learning_rate_;
  std::vector<sync::Turn> script_;
  LazyPlan lazy_;
  std::vector<AveragingGroups> levels_;
  std::vector<transport::Communicator> averaging_groups_;  // one per level
  Traces traces_;
  std::unique_ptr<sync::UpdateScheme> scheme_;
  std::optional<StepLink> link_;
  SlowRank slow_rank_;
  LossMeter losses_;
  TrafficMeter traffic_;
  SynchronousMeter synchronous_;
  std::vector<std::string> injections_;
  // How far the run is. The figures of run_state() (seconds, losses, traffic ...) are here as they
  // were when the run was begun or resumed.
  RunState run_;
  bool diverged_ = false;              // has a sweep ended so?
  bool stopped_ = false;               // was the run asked to stop?
  sync::SchemeCounters epoch_before_;  // what the scheme had counted before the epoch

  std::optional<StepCheck> check_;  // made in join(), as the next
  std::optional<CheckpointWriter> checkpoints_;
  std::exception_ptr lost_checkpoint_;        // why one of the last could not be written
  std::int64_t last_checkpoint_ = 0;          // its step
  std::optional<ResumedCheckpoint> resumed_;  // nothing where the run begins
  bool continues_log_ = false;
};

}  // namespace rondo::train

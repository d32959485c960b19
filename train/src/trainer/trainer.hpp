#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>

#include <rondo/train/trainer.hpp>

#include "checkpoint/writer.hpp"
#include "trainer/evaluation.hpp"
#include "trainer/prepare.hpp"
#include "trainer/run_log.hpp"
#include "trainer/run_record.hpp"
#include "trainer/step_loop.hpp"
#include "trainer/trained_state.hpp"

namespace rondo::train {

/// One rank of a run: the loop over epochs, with a checkpoint between steps or behind an epoch.
/// train() runs it; tests look at the parameters in between.
class Trainer {
 public:
  /// Makes everything that a step needs but the scheme. Communicates nothing, so that a rank that
  /// fails here leaves no other waiting. `world` and `log` are lent, and so is what pointers in
  /// `options` point to.
  Trainer(transport::World& world, PreparedRun run, TrainerOptions options, RunLog& log);

  /// Makes the scheme with the other ranks, and goes on from the checkpoint that `options` name.
  /// Collective; once, before all that follows.
  void join();
  /// Trains to the end of the run, unless it is asked to stop before, and leaves its checkpoints
  /// and its model complete. Collective.
  void run();

  /// Nothing is left to be trained or evaluated, or the run was asked to stop.
  [[nodiscard]] bool done() const noexcept {
    return stopped_ || (!state_.trains() && !state_.run.epoch_open);
  }
  [[nodiscard]] bool stopped() const noexcept { return stopped_; }
  /// At which step it was, and what was left of it.
  [[nodiscard]] std::string stop_report() const;
  /// Why a run that was not stopped by an error has ended.
  [[nodiscard]] std::string reason_of_end() const;

  /// Trains to the end of the epoch, or of the run, then evaluates, unless it is asked to stop
  /// before. Returns the metrics of the last epoch that was evaluated. Collective.
  const EpochMetrics& run_epoch();
  [[nodiscard]] const EpochMetrics& last_epoch() const noexcept { return state_.run.last_epoch; }

  /// The run has failed: removes on rank 0 what has been written of a checkpoint that is not
  /// complete.
  void abandon_checkpoint() noexcept;
  /// Adds what the scheme has still pending to the parameters. Collective.
  void finish();

  /// The summary of the run so far; what the log knows is left to it.
  [[nodiscard]] RunSummary summary(const std::string& reason, bool by_error = false) {
    return record_.summary(reason, by_error);
  }
  [[nodiscard]] const ParameterLayout& layout() const noexcept { return state_.layout; }
  [[nodiscard]] std::span<const float> parameters() const noexcept { return state_.parameters; }

 private:
  /// A checkpoint's state: the run where it is now, or where it was before an evaluation.
  struct Moment {
    RunState state;
    std::uint64_t metrics_bytes = 0;
    std::uint64_t token_trace_bytes = 0;
  };

  void train_all_epochs();
  [[nodiscard]] bool is_due(std::int64_t every_steps) const;
  void end_step();
  void end_epoch(const std::optional<Moment>& before);
  [[nodiscard]] Moment now();
  void save_checkpoint(const Moment& moment);
  void save_checkpoint_of_epoch(const Moment& moment);
  void complete_checkpoints();
  void set_aside_other_checkpoints();
  void begin_anew();
  void resume();
  void restore();
  void continue_log();

  TrainedState state_;
  Evaluation evaluation_;
  RunRecord record_;
  StepLoop loop_;
  std::optional<CheckpointWriter> checkpoints_;  // made in join()
  std::exception_ptr lost_checkpoint_;           // why one of the last could not be written
  std::int64_t last_checkpoint_ = 0;             // its step
  bool stopped_ = false;                         // was the run asked to stop?
};

}  // namespace rondo::train

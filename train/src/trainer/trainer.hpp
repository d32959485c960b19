#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <span>
#include <vector>

#include <rondo/sync/learning_rate.hpp>
#include <rondo/sync/update_scheme.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/train/executor.hpp>
#include <rondo/train/loader.hpp>
#include <rondo/train/trainer.hpp>

#include "trainer/loss_meter.hpp"
#include "trainer/material.hpp"
#include "trainer/run_log.hpp"
#include "trainer/share.hpp"
#include "trainer/step_link.hpp"
#include "trainer/traffic_meter.hpp"

namespace rondo::train {

/// One rank of a run: everything it owns, and the loops over epochs and steps. train() is its
/// front; tests look at the parameters in between.
class Trainer {
 public:
  /// Reads the data and makes everything that a step needs. Communicates nothing, so that a rank
  /// that fails here leaves no other waiting. `world` and `log` are lent.
  Trainer(transport::World& world, const Experiment& experiment, const TrainerOptions& options,
          RunLog& log);

  /// Tells the log what will run.
  void announce() const;

  [[nodiscard]] bool done() const noexcept { return step_ == total_steps_; }
  /// Does the run end by max_steps, before its last epoch is complete?
  [[nodiscard]] bool cut_short() const noexcept {
    return total_steps_ < experiment_.train.epochs * loader_.steps();
  }
  /// Steps done.
  [[nodiscard]] std::int64_t steps() const noexcept { return step_; }

  /// Trains to the end of the epoch, or of the run, then evaluates. Collective, as are its steps.
  EpochMetrics run_epoch();

  /// Brings what the scheme still holds back into the parameters. Collective.
  void finish() { scheme_->flush(); }

  [[nodiscard]] const ParameterLayout& layout() const noexcept { return layout_; }
  [[nodiscard]] std::span<const float> parameters() const noexcept { return parameters_; }
  [[nodiscard]] std::span<const float> statistics() const noexcept { return statistics_; }

 private:
  /// The test set as the ranks judged it together.
  struct Evaluation {
    LossSums sums;
    double seconds = 0.0;  ///< mean over the ranks
    std::string parameter_hash = {};
  };

  [[nodiscard]] ExecutorOptions executor_options() const;
  [[nodiscard]] sync::Replica replica();
  [[nodiscard]] SampleRange range_of(std::int64_t step) const;
  [[nodiscard]] StartEvent start_event() const;
  void run_step();
  LossSums reduce_losses();
  void report_step();
  void report_progress() const;
  Evaluation evaluate();
  EpochMetrics epoch_metrics(const sync::SchemeCounters& before);

  transport::World& world_;
  RunLog& log_;
  std::function<void()> on_step_;
  Experiment experiment_;
  int threads_;
  Material material_;
  ParameterLayout layout_;
  std::pmr::vector<float> parameters_;  // these two in the World's arena
  std::pmr::vector<float> gradients_;
  std::vector<float> statistics_;
  std::vector<float> evaluated_parameters_;  // the scheme's copy for evaluation
  std::vector<float> evaluated_statistics_;
  Loader loader_;
  tensor::Engine engine_;
  Executor executor_;
  std::unique_ptr<sync::UpdateScheme> scheme_;
  StepLink link_;
  std::int64_t total_steps_;
  sync::LearningRate learning_rate_;
  LossMeter losses_;
  TrafficMeter traffic_;
  std::int64_t step_ = 0;         // over the whole run
  std::int64_t epoch_first_ = 0;  // the epoch's first step
};

}  // namespace rondo::train

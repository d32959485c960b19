#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <rondo/train/dataset.hpp>
#include <rondo/train/executor.hpp>
#include <rondo/train/experiment.hpp>
#include <rondo/train/export.hpp>
#include <rondo/train/loader.hpp>
#include <rondo/train/model.hpp>

namespace rondo::sync {
class Optimizer;
class UpdateScheme;
struct Replica;
}  // namespace rondo::sync

namespace rondo::transport {
class Team;
class World;
}  // namespace rondo::transport

namespace rondo::train {

class StepProfile;

/// Training went wrong numerically: the loss became NaN or Inf, or ranks that must hold the same
/// parameters do not. what() names the step, and the ranks. Thrown on every rank alike.
class RONDO_TRAIN_API NumericError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A run ended before its time, because TrainerOptions::request asked for it. what() names the step
/// and the checkpoint that was left. Thrown on every rank alike.
class RONDO_TRAIN_API Stopped : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A request to a run from outside; where there are two, the greater one counts.
enum class RunRequest : int {
  none = 0,
  checkpoint = 1,           ///< leave a checkpoint, and go on
  checkpoint_and_stop = 2,  ///< leave a checkpoint, and throw Stopped
};

/// The figures of a progress line, after every step, for the current epoch. Loss, accuracy and
/// communication are rank 0's own, so that showing them costs no communication.
struct Progress {
  std::int64_t epoch = 0;  ///< 1-based
  std::int64_t epochs = 0;
  std::int64_t step = 0;  ///< 1-based, within the epoch
  std::int64_t steps = 0;
  double loss = 0.0;               ///< mean over the epoch's samples so far
  double accuracy = 0.0;           ///< percent, of the training samples so far
  double images_per_second = 0.0;  ///< of all ranks
  double communication_share = 0.0;
  double seconds_left = 0.0;  ///< of the whole run's steps, at the pace of this epoch
  /// Under a scheme whose ranks do not step together: what all of them have trained of the epoch,
  /// and of how much; a step is a global batch of samples then. Else 0.
  std::int64_t samples = 0;
  std::int64_t epoch_samples = 0;
  bool injected = false;  ///< were ranks or links slowed down on purpose?
};

/// One epoch's line of metrics.jsonl, under the same names; figures are of this epoch alone, and
/// of all ranks together. Training means the steps, loading included, evaluation excluded.
struct EpochMetrics {
  std::int64_t epoch = 0;               ///< 1-based
  double loss = 0.0;                    ///< mean over the epoch's training samples
  double accuracy = 0.0;                ///< percent, on the test set, of the evaluation copy
  double training_accuracy = 0.0;       ///< percent, of the training samples as they were seen
  double test_loss = 0.0;               ///< mean over the test set
  double images_per_second = 0.0;       ///< training samples / seconds
  double seconds = 0.0;                 ///< of training, mean over the ranks
  double evaluation_seconds = 0.0;      ///< evaluation copy and test set, mean over the ranks
  double communication_share = 0.0;     ///< of `seconds`, in transport calls after the last arrival
  double wait_share = 0.0;              ///< of `seconds`, in transport calls before it
  std::uint64_t global_reductions = 0;  ///< see sync::SchemeCounters; mean over the ranks
  std::uint64_t local_reductions = 0;
  std::uint64_t global_bytes = 0;  ///< that went into the former; sum over the ranks
  std::uint64_t local_bytes = 0;
  std::uint64_t evaluation_reductions = 0;
  std::uint64_t bytes_sent = 0;     ///< moved between ranks by training, sum over the ranks
  bool injected = false;            ///< were ranks or links slowed down on purpose?
  std::string parameter_hash = {};  ///< XXH3-128 of the evaluation copy's parameters, 32 hex digits
};

/// The whole run, as the last line of metrics.jsonl has it under the same names. Reductions are
/// means over the ranks, bytes are sums over them, seconds are means; evaluation is left out. The
/// synchronous_ figures are what synchronous updates would have needed for as many steps.
struct RunSummary {
  /// "completed", "max_steps", "stopped", "diverged" (a sweep of rates), or what went wrong.
  std::string reason = {};
  std::string scheme = {};
  double seconds = 0.0;  ///< of everything
  std::int64_t epochs = 0;
  std::int64_t steps = 0;    ///< global batches of samples
  std::int64_t samples = 0;  ///< trained, of all ranks
  double final_accuracy = 0.0;
  double best_accuracy = 0.0;
  double training_seconds = 0.0;
  double communication_seconds = 0.0;  ///< of these: in transport calls after the last arrival
  double wait_seconds = 0.0;           ///< and before it
  std::uint64_t global_reductions = 0;
  std::uint64_t local_reductions = 0;
  std::uint64_t synchronous_reductions = 0;
  std::uint64_t global_bytes = 0;  ///< that went into reductions
  std::uint64_t local_bytes = 0;
  std::uint64_t synchronous_bytes = 0;
  std::uint64_t bytes_sent = 0;  ///< moved between ranks
  /// 2 (P-1) times the gradients for each step; on a grid 2 (g-1) times each slice that g ranks
  /// hold, and the activations.
  std::uint64_t synchronous_bytes_sent = 0;
  /// Lazy only: iterations after its warm-up, and reductions of the lazy layers in them.
  std::int64_t lazy_iterations = 0;
  std::uint64_t lazy_reductions = 0;
  std::uint64_t peak_bytes = 0;  ///< the most that rank 0's arrays took at once: see memory_limit
  std::vector<std::string> injected = {};  ///< what was slowed down on purpose, in words
};

/// The trainer calls these functions while it runs, on rank 0 only, on the training thread.
struct TrainerObserver {
  /// Before the first step: the experiment as it runs, with what grid.plan = "auto" has chosen.
  /// metrics.jsonl has what stays of earlier parts of the run, and no line of this one.
  std::function<void(const Experiment& experiment)> on_start = {};
  std::function<void(const std::string& line)> on_note = {};  ///< facts worth printing once
  std::function<void(const Progress&)> on_progress = {};
  std::function<void(const EpochMetrics&)> on_epoch = {};
  std::function<void(const RunSummary&)> on_end = {};  ///< unless the run ends by an error
};

/// Makes an update scheme of the user's own, on all ranks together: for this rank's replica, with
/// the optimizer that [optimizer] names. See sync::SchemeBase.
using MakeScheme = std::function<std::unique_ptr<sync::UpdateScheme>(
    const sync::Replica& replica, const std::shared_ptr<sync::Optimizer>& optimizer)>;

struct TrainerOptions {
  int threads = 0;                  ///< of this rank; 0: [train] threads, or 1 where that is 0
  transport::Team* team = nullptr;  ///< lent; shares long flat passes among its threads
  /// A data set of the user's own, the same on every rank; lent. Null: what [data] names.
  const Dataset* dataset = nullptr;
  /// A model of the user's own, the same on every rank, whatever kinds of layers it has; lent.
  /// Null: what [model] names.
  const Model* model = nullptr;
  std::vector<Augmentation> augmentations = {};  ///< of training images, after those of [data]
  LossFunction loss = {};  ///< empty: softmax cross-entropy; else train.label_smoothing must be 0
  /// An update scheme of the user's own, in place of the synchronous one: update.scheme must be
  /// "synchronous". Batches are whole, nothing warms up, and ranks must step together
  /// (SchemeDescription::own_pace is refused). Empty: what [update] names, or update.plugin.
  MakeScheme make_scheme = {};
  /// Rank 0 writes metrics.jsonl there; empty: nowhere. A run that does not resume replaces what an
  /// earlier one has left there, once nothing has been refused.
  std::filesystem::path run_folder = {};
  /// Throws ConfigError where an earlier run has left events there, and this one does not resume.
  bool keep_earlier_run = false;
  /// Goes on from a checkpoint: "auto" for the newest of run_folder that can be used, or the run
  /// begins when there is none, and is refused when it has_completed(); else a run's folder, or a
  /// checkpoint's. Rank 0's counts. With the same ranks, grid and threads the run ends with the
  /// bits that it would have had without an interruption.
  std::filesystem::path resume = {};
  /// Called on every rank in every step, and forgets the request that it returns. All ranks do what
  /// one is asked: at the end of the step, or of the epoch where replicas go each at its own pace.
  std::function<RunRequest()> request = {};
  TrainerObserver observer = {};
  /// Makes the run a sweep of learning rates, of which only the losses matter: it evaluates nothing
  /// and leaves neither a model nor checkpoints, also where it is asked to stop. Asked on every
  /// rank after each "step" event ([train] log_every) with its loss, which is the same on all
  /// ranks; true ends the run. Empty: a run as usual.
  std::function<bool(double loss)> diverges = {};
  /// Told on every rank of each image that data.broken = "skip" leaves out, when it is met for the
  /// first time: on threads that decode, perhaps several at once. The text names the file as it is.
  std::function<void(const std::string& problem)> on_broken = {};
  StepProfile* profile = nullptr;      ///< lent; records some steps of this rank. Null: none
  std::function<void()> on_step = {};  ///< after every step, on every rank; on the training thread
};

/// Has the run in this folder done all that it was asked for? So says the last line of its
/// metrics.jsonl, if there is one. Throws DataError where that cannot be read.
[[nodiscard]] RONDO_TRAIN_API bool has_completed(const std::filesystem::path& run_folder);

/// Has it left a checkpoint, whether that can be used or not? Folders under other names than those
/// that a run gives do not count.
[[nodiscard]] RONDO_TRAIN_API bool has_checkpoint(const std::filesystem::path& run_folder);

/// Trains `experiment` on all ranks of `world`; returns the last epoch's metrics (the same on
/// every rank). Collective.
///
/// Rank r of P takes samples B*r/P to B*(r+1)/P, rounded down, of every step's global batch of B
/// samples. The run ends after [train] epochs, or within an epoch after max_steps. Where
/// replicas do not step together (cyclic), every rank has mini-batches of its own, with as many
/// samples, and an epoch or the run ends when all ranks together have trained its samples.
///
/// Where [checkpoint] asks for it, and at the end of such a run, the state of all ranks is left in
/// rank 0's run_folder, which every rank must be able to write to.
///
/// Throws ConfigError, DataError, NumericError, Stopped, transport::Error, or what a callback of
/// `options` throws. An error on any rank, before the first step or later, ends all ranks with the
/// same type: other types than these four and std::invalid_argument become std::runtime_error on
/// other ranks. A later error on one rank alone aborts the World, so that no rank waits for it; an
/// error that all ranks throw together leaves it as it was.
RONDO_TRAIN_API EpochMetrics train(transport::World& world, const Experiment& experiment,
                                   const TrainerOptions& options);

}  // namespace rondo::train

// The loop over the epochs of a run, and its checkpoints.
//
// A checkpoint is taken between two steps. Where a step ends an epoch, or the run, that is after
// the evaluation, so that the test accuracy is known; of a run that ends within an epoch it still
// has the figures from before. A rank's state has five parts: its parameters; the running
// statistics of batch norm; what the scheme and its optimizer save; how far the run has come, with
// the figures of the epoch under way; and what was evaluated, where that is another model. Nothing
// else lives from one step to the next: batches follow from the step.

#include "trainer/trainer.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <rondo/train/dataset.hpp>
#include <rondo/transport/error.hpp>
#include <rondo/transport/world.hpp>

#include "checkpoint/resume.hpp"
#include "checkpoint/storage.hpp"
#include "schemes/make_scheme.hpp"
#include "schemes/scheme_plugin.hpp"
#include "trainer/agreement.hpp"

namespace rondo::train {
namespace {

/// The scheme of the program or of a plug-in; empty when there is neither.
MakeScheme own_scheme_of(const Experiment& experiment, const TrainerOptions& options) {
  if (experiment.update.plugin.empty()) return options.make_scheme;
  if (options.make_scheme != nullptr) {
    throw ConfigError("update.plugin: the program brings a scheme, too; use one of them");
  }
  return load_scheme_plugin(experiment.update);
}

int threads_of(const Experiment& experiment, const TrainerOptions& options) {
  const auto wanted = static_cast<int>(experiment.train.threads);
  return std::max(options.threads > 0 ? options.threads : wanted, 1);
}

/// The error that ended the run is told; one more while telling it is not. The summary of a large
/// model takes a while, and most ranks tell nobody. The disk may be full of a checkpoint that is
/// not complete.
void end_by_error(RunLog& log, Trainer& trainer, const std::string& error) noexcept {
  trainer.abandon_checkpoint();
  if (!log.active()) return;
  try {
    log.end(trainer.summary(error, true), true);
  } catch (...) {  // NOLINT(bugprone-empty-catch): the first error matters
  }
}

std::vector<std::byte> bytes_of(std::span<const float> values) {
  const auto bytes = std::as_bytes(values);
  return {bytes.begin(), bytes.end()};
}

}  // namespace

EpochMetrics train(transport::World& world, const Experiment& wanted, const TrainerOptions& given) {
  // Each of these steps may fail on one rank: then all throw here, before anything communicates
  // that only some take part in.
  std::optional<RunLog> log;
  std::optional<Trainer> trainer;
  TrainerOptions options = given;
  options.threads = threads_of(wanted, given);
  Experiment experiment = wanted;
  if (given.threads > 0 || wanted.train.threads == 0) experiment.train.threads = options.threads;
  const std::string difference = difference_of_parts(world, given);
  agree_on(world, [&] {
    options.make_scheme = own_scheme_of(experiment, given);
    if (given.loss && experiment.train.label_smoothing > 0.0) {
      throw ConfigError("train.label_smoothing: the program's own loss has no use for it; give 0");
    }
    if (!difference.empty()) throw ConfigError(difference + "; give all ranks the same");
  });
  // Rank 0 may have to wait for an earlier run in the folder.
  if (world.rank() != 0) log.emplace(options, world.rank());
  std::optional<Experiment::Grid> earlier;
  agree_on_first_rank(world, [&] {
    log.emplace(options, 0);
    if (options.resume.empty()) return;
    earlier = grid_of_earlier_run(options.run_folder, options.resume, world.size(), experiment);
  });
  PreparedRun prepared =
      prepare_run(world, experiment, options.dataset, options.model, earlier, options.team);
  agree_on(world, [&] {
    if (!prepared.planned.empty()) log->note(prepared.planned);
    trainer.emplace(world, std::move(prepared), std::move(options), *log);
  });
  try {
    end_together(world, [&] {
      trainer->join();
      trainer->run();
      // Written as the last thing: a file without an end event is of a run that was killed, or goes
      // on.
      const RunSummary summary = trainer->summary(trainer->reason_of_end());
      agree_on_first_rank(world, [&] { log->end(summary, trainer->stopped()); });
    });
  } catch (const std::exception& error) {
    end_by_error(*log, *trainer, error.what());
    throw;
  } catch (...) {
    end_by_error(*log, *trainer, "an exception of an unknown type");
    throw;
  }
  if (trainer->stopped()) throw Stopped(trainer->stop_report());
  return trainer->last_epoch();
}

Trainer::Trainer(transport::World& world, PreparedRun run, TrainerOptions options, RunLog& log)
    : state_(world, std::move(run), std::move(options)),
      evaluation_(state_),
      record_(state_, log),
      loop_(state_, record_) {
  state_.make_executor();
}

void Trainer::join() {
  state_.join(record_.log());
  loop_.join();
  record_.join();
  // A sweep is never gone on with, also where it is stopped.
  if (!state_.options.run_folder.empty() && !state_.sweeps()) {
    checkpoints_.emplace(state_.world.communicator(),
                         CheckpointWriter::Options{.run_folder = state_.options.run_folder,
                                                   .logs = record_.log().files(),
                                                   .keep = state_.experiment.checkpoint.keep,
                                                   .best = state_.experiment.checkpoint.best});
  }
  state_.resumed ? resume() : begin_anew();
}

void Trainer::run() {
  record_.announce();
  if (state_.trains() && state_.world.rank() == 0 && !state_.options.run_folder.empty()) {
    // A file of an earlier part's end is of a model that the run leaves behind. One that stays is
    // replaced at the end.
    std::error_code ignored;
    std::filesystem::remove(state_.options.run_folder / "model.safetensors", ignored);
  }
  train_all_epochs();
  const auto save_model = [&] {
    if (stopped_ || state_.sweeps()) return;
    finish();
    evaluation_.save_model();
  };
  try {
    complete_checkpoints();
  } catch (const DataError&) {
    save_model();  // on all ranks; without the checkpoint the disk has room for it
    throw;
  }
  save_model();
}

// Ranks that throw NumericError alike can complete the last checkpoint from before. Where ranks
// step alone, the World is aborted: a checkpoint that was not complete stays unfinished, as where a
// program's own part throws NumericError on one rank.
void Trainer::train_all_epochs() {
  try {
    while (!done()) run_epoch();
  } catch (const NumericError& numeric) {
    if (state_.world.size() > 1 && !is_thrown_by_all()) throw;
    try {
      complete_checkpoints();
    } catch (const transport::Error&) {  // NOLINT(bugprone-empty-catch): the first error matters
    } catch (const DataError& error) {   // on all ranks
      throw_on_all(
          fmt::format("{}; the last checkpoint is not complete: {}", numeric.what(), error.what()));
    }
    throw;
  }
}

const EpochMetrics& Trainer::run_epoch() {
  RunState& run = state_.run;
  record_.begin_epoch();
  loop_.run([this, paced = state_.is_paced_now()] {
    if (checkpoints_) checkpoints_->progress();
    if (!paced) end_step();
    return stopped_;
  });
  // Ranks that go at a pace of their own may have done a little more than a whole epoch at its end.
  const std::int64_t end = is_paced(state_.experiment) ? state_.total_steps : run.step;
  std::optional<Moment> before;
  if (!stopped_ && !state_.trains() && end % state_.batches.steps() != 0) before = now();
  loop_.settle();
  const Work work = record_.sum_up_epoch();
  // Stopped within the epoch: the checkpoint has been taken.
  std::optional<TestFigures> tested;
  if (!stopped_ && !state_.sweeps()) tested = evaluation_.test();
  record_.end_epoch(work, tested);
  if (stopped_) return run.last_epoch;
  run.epoch_open = false;
  end_epoch(before);
  return run.last_epoch;
}

// A run that was resumed at its end has evaluated nothing.
void Trainer::finish() {
  evaluation_.copy_if_empty();
  record_.flush();
}

std::string Trainer::reason_of_end() const {
  if (stopped_) return "stopped";
  if (loop_.diverged()) return "diverged";
  const bool cut_short =
      state_.total_steps < state_.experiment.train.epochs * state_.batches.steps();
  return cut_short ? "max_steps" : "completed";
}

std::string Trainer::stop_report() const {
  const std::int64_t step = state_.run.step;
  if (!checkpoints_) return fmt::format("stopped as asked after step {}", step);
  return fmt::format("stopped as asked after step {}; go on with --resume auto, or --resume {}",
                     step, checkpoint_folder(state_.options.run_folder, step).string());
}

// Checkpoints.

bool Trainer::is_due(std::int64_t every_steps) const {
  return every_steps > 0 && state_.run.step / every_steps != last_checkpoint_ / every_steps;
}

// Where a step ends an epoch, or the run within one, end_epoch() follows.
void Trainer::end_step() {
  const std::int64_t step = state_.run.step;
  if (step % state_.batches.steps() == 0 || !state_.trains()) return;
  StepCheck& check = loop_.check();
  if (check.requested() == RunRequest::none && !is_due(state_.experiment.checkpoint.every_steps)) {
    return;
  }
  if (step > state_.warm_up_steps && !state_.scheme->description().resumes_anywhere) {
    check.postpone_request();
    return;
  }
  loop_.settle();  // nothing that is not finite is kept
  const RunRequest request = check.take_request();
  stopped_ = request == RunRequest::checkpoint_and_stop;
  save_checkpoint(now());
  if (request != RunRequest::none) check.take_answered();
}

// Requests count, too, that came during the evaluation, or to ranks that went each at a pace of
// their own. A run that ends within an epoch keeps the moment before its
// evaluation: a longer one goes on with the epoch. A run that has left a checkpoint leaves one at
// its end, too: --resume auto would go back to the earlier one.
void Trainer::end_epoch(const std::optional<Moment>& before) {
  const Experiment::Checkpoint& options = state_.experiment.checkpoint;
  RunState& run = state_.run;
  const RunRequest request = loop_.check().take_request_of_epoch();
  stopped_ = request == RunRequest::checkpoint_and_stop && state_.trains();
  const bool better = run.last_epoch.accuracy > run.best_accuracy;
  run.best_accuracy = std::max(run.best_accuracy, run.last_epoch.accuracy);
  const bool due = is_due(options.every_steps) ||
                   (options.every_epochs > 0 && run.epoch % options.every_epochs == 0) ||
                   (options.best && better) ||
                   (!state_.trains() && (options.wanted() || last_checkpoint_ > 0));
  if (request != RunRequest::none || due) save_checkpoint_of_epoch(before ? *before : now());
  if (request != RunRequest::none) loop_.check().take_answered();
}

// Messages that still travel count for the steps before.
Trainer::Moment Trainer::now() {
  state_.complete_parameters();
  return {record_.run_state(), record_.log().metrics_bytes(), record_.log().trace_bytes()};
}

void Trainer::save_checkpoint(const Moment& moment) {
  if (!checkpoints_) return;
  // The copies of the one before are freed before new ones are made.
  checkpoints_->finish();
  const bool within_epoch = state_.run.epoch_open;
  RankState state = {bytes_of(state_.parameters), bytes_of(state_.statistics),
                     state_.scheme->save(), to_bytes(moment.state),
                     // Within an epoch the copy is of an older model.
                     to_bytes(within_epoch ? EvaluatedPart{} : evaluation_.part())};
  Manifest about = state_.manifest();
  about.metrics_bytes = moment.metrics_bytes;
  about.metrics_checksum = record_.log().metrics_checksum(moment.metrics_bytes);
  about.token_trace_bytes = moment.token_trace_bytes;
  // Between epochs the accuracy is that of these parameters; within one it would be an older one.
  if (!within_epoch) about.accuracy = state_.run.last_epoch.accuracy;
  record_.traffic().leave_out_of([&] { checkpoints_->start(std::move(about), std::move(state)); });
  last_checkpoint_ = state_.run.step;
}

// A run that has trained all its steps goes on to its end: it can still leave its model.
void Trainer::save_checkpoint_of_epoch(const Moment& moment) {
  if (!state_.trains()) {
    try {
      complete_checkpoints();
    } catch (const DataError&) {  // the one before could not be written; all ranks know
      lost_checkpoint_ = std::current_exception();
      return;
    }
  }
  save_checkpoint(moment);
}

// Waits until the last one is complete.
void Trainer::complete_checkpoints() {
  if (lost_checkpoint_ != nullptr) std::rethrow_exception(lost_checkpoint_);
  if (!checkpoints_) return;
  std::exception_ptr failure;
  try {
    checkpoints_->finish_together();
  } catch (const transport::Error&) {
    throw;  // others may not come to agree
  } catch (...) {
    failure = std::current_exception();
  }
  agree_on(state_.world, [&] {
    if (failure != nullptr) std::rethrow_exception(failure);
  });
}

void Trainer::abandon_checkpoint() noexcept {
  if (checkpoints_) checkpoints_->abandon();
}

// The beginning of a run, and of a part that goes on.

// A folder's checkpoints of steps that this run has not made belong to another run, or to a part
// that the run leaves behind: the run must not go on from them, nor count them among those that are
// kept. A run that goes on from another folder's checkpoint has made none of those in its own.
void Trainer::set_aside_other_checkpoints() {
  const bool made_some = state_.resumed && state_.resumed->in_run_folder;
  if (state_.world.rank() != 0 || state_.options.run_folder.empty()) return;
  set_aside_later(state_.options.run_folder, made_some ? state_.run.step : -1);
}

// Nothing has been refused so far: what an earlier run has left in the folder is replaced. Where
// the launcher has seen an empty folder, another run may have been in it meanwhile.
void Trainer::begin_anew() {
  agree_on(state_.world, [&] {
    const bool replaces = !state_.options.keep_earlier_run || !state_.options.resume.empty();
    if (!replaces && record_.log().metrics_bytes() > 0) {
      throw ConfigError(
          state_.options.run_folder.string() +
          " already holds a run's metrics.jsonl; choose another folder, or remove it");
    }
    set_aside_other_checkpoints();
    record_.log().begin_anew();
  });
}

void Trainer::resume() {
  const ResumedCheckpoint& from = *state_.resumed;
  agree_on(state_.world, [&] {
    if (from.exact || !is_paced(state_.experiment) || from.manifest.step <= state_.warm_up_steps) {
      return;
    }
    throw ConfigError(fmt::format(
        "update.scheme: {} goes on only with the ranks and the grid of its checkpoint, {} ranks in "
        "{} replicas; resume with those",
        state_.experiment.update.scheme, from.manifest.ranks, from.manifest.replicas));
  });
  restore();
  // No rank has failed. First the later checkpoints: what those say of metrics.jsonl will not hold.
  agree_on(state_.world, [&] {
    set_aside_other_checkpoints();
    continue_log();
  });
  last_checkpoint_ = state_.run.step;
  // The run's own folder must not be left without one: it would begin again from nothing.
  if (from.in_run_folder || !checkpoints_) return;
  record_.traffic().start(state_.run.traffic);
  save_checkpoint(now());
  complete_checkpoints();
}

void Trainer::restore() {
  const ResumedCheckpoint& from = *state_.resumed;
  RunState before;
  if (!from.exact) before = state_for_other_ranks(state_.world, from);
  agree_on(state_.world, [&] {
    if (!from.in_run_folder && record_.log().metrics_bytes() > 0) {
      throw ConfigError(state_.options.run_folder.string() +
                        " already holds another run than the checkpoint's; "
                        "choose another folder, or remove it");
    }
    state_.restore();
    if (from.exact) before = read_run_state(from.read(state_.world.rank(), Part::progress));
    record_.restore(before);
    if (!from.exact && !state_.keeps_momenta()) state_.run.momenta_from = state_.run.step;
    if (from.exact && from.manifest.accuracy && !state_.run.epoch_open) evaluation_.restore();
    record_.note_resumed();
  });
}

void Trainer::continue_log() {
  RunLog& log = record_.log();
  const ResumedCheckpoint& from = *state_.resumed;
  const std::uint64_t trace_bytes = from.manifest.token_trace_bytes;
  if (from.in_run_folder) {
    log.continue_metrics({.bytes = from.manifest.metrics_bytes,
                          .checksum = from.manifest.metrics_checksum,
                          .step = from.manifest.step});
  }
  log.resume(trace_bytes);
  if (from.in_run_folder) return log.expect_token_trace(trace_bytes);
  log.copy_token_trace(from.folder().parent_path() / "token_trace.jsonl", trace_bytes);
}

}  // namespace rondo::train

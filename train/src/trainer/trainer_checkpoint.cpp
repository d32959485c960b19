// How a Trainer keeps its state for later, and how it goes on from there.
//
// A checkpoint is taken between two steps. Where a step ends an epoch, or the run, that is after
// the evaluation, so that the test accuracy is known; of a run that ends within an epoch it still
// has the figures from before. A rank's state has five parts: its parameters; the running
// statistics of batch norm; what the scheme and its optimizer save; how far the run has come, with
// the figures of the epoch under way; and what was evaluated, where that is another model. Nothing
// else lives from one step to the next: batches follow from the step.

#include <algorithm>
#include <cstring>
#include <exception>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <rondo/train/dataset.hpp>
#include <rondo/transport/error.hpp>
#include <rondo/transport/world.hpp>

#include "checkpoint/resume.hpp"
#include "checkpoint/storage.hpp"
#include "config/combinations.hpp"
#include "schemes/make_scheme.hpp"
#include "trainer/agreement.hpp"
#include "trainer/run_state.hpp"
#include "trainer/trainer.hpp"
#include "weights/model_weights.hpp"

namespace rondo::train {
namespace {

std::vector<std::byte> bytes_of(std::span<const float> values) {
  const auto bytes = std::as_bytes(values);
  return {bytes.begin(), bytes.end()};
}

void copy_back(const ResumedCheckpoint& checkpoint, int rank, Part part, std::span<float> values) {
  const std::vector<std::byte> bytes = checkpoint.read(rank, part);
  if (bytes.size() != values.size_bytes()) {
    const std::string& name = checkpoint.manifest.file_of(rank, part).name;
    throw DataError(
        fmt::format("{}: holds {} bytes, and this rank has {}; resume with the "
                    "configuration of that run",
                    (checkpoint.path / name).string(), bytes.size(), values.size_bytes()));
  }
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
}

// The folder of checkpoints that it is in, beside which a run has its logs: by its name, where that
// says so, for it or the checkpoint may be a link to where there is more room.
std::filesystem::path folder_of(const ResumedCheckpoint& checkpoint) {
  std::error_code error;
  const auto named = std::filesystem::absolute(checkpoint.path, error).parent_path();
  if (named.filename() == checkpoints_in({})) return named;
  return std::filesystem::weakly_canonical(checkpoint.path, error).parent_path();
}

}  // namespace

// The parts of a checkpoint that can be taken over.

// Under gradients that are reduced in every step all ranks have the same momenta, whatever their
// number. On a grid each has those of its part.
bool Trainer::keeps_momenta() const {
  const sync::SchemeDescription& scheme = scheme_of(experiment_.update);
  // Windows and periods are states of a scheme that another number of ranks cannot go on with, and
  // so are shares of an optimizer's. The states of a user's own scheme are not known.
  const bool in_step = !scheme.steps_alone() && !scheme.windows && !scheme.divides_optimizer;
  const Manifest& manifest = resumed_->manifest;
  return !options_.make_scheme && grid_.is_whole() && manifest.replicas == manifest.ranks &&
         (in_step || manifest.step < warm_up_steps_);
}

// A scheme that is not restored begins anew, and so would its warm-up.
std::int64_t Trainer::warm_up_left() const {
  if (!resumed_ || resumed_->exact || keeps_momenta()) return warm_up_steps_;
  return std::max<std::int64_t>(warm_up_steps_ - resumed_->manifest.step, 0);
}

// A sweep is never gone on with, also where it is stopped.
void Trainer::begin_checkpoints() {
  if (options_.run_folder.empty() || sweeps()) return;
  checkpoints_.emplace(world_.communicator(),
                       CheckpointWriter::Options{.run_folder = options_.run_folder,
                                                 .logs = log_.files(),
                                                 .keep = experiment_.checkpoint.keep,
                                                 .best = experiment_.checkpoint.best});
}

// Taking it over.

// A folder's checkpoints of steps that this run has not made belong to another run, or to a part
// that the run leaves behind: the run must not go on from them, nor count them among those that are
// kept. A run that goes on from another folder's checkpoint has made none of those in its own.
void Trainer::set_aside_other_checkpoints() {
  agree_on(world_, [&] {
    if (world_.rank() != 0 || options_.run_folder.empty()) return;
    set_aside_later(options_.run_folder, continues_log_ ? run_.step : -1);
  });
}

// Nothing has been refused so far: what an earlier run has left in the folder is replaced. Where
// the launcher has seen an empty folder, another run may have been in it meanwhile.
void Trainer::begin_anew() {
  agree_on(world_, [&] {
    const bool replaces = !options_.keep_earlier_run || !options_.resume.empty();
    if (replaces || log_.metrics_bytes() == 0) return;
    throw ConfigError(options_.run_folder.string() +
                      " already holds a run's metrics.jsonl; choose another folder, or remove it");
  });
  set_aside_other_checkpoints();
  agree_on(world_, [&] { log_.begin_anew(); });
}

void Trainer::restore() {
  if (!resumed_) return begin_anew();
  const Manifest& manifest = resumed_->manifest;
  agree_on(world_, [&] {
    if (resumed_->exact || !is_paced(experiment_) || manifest.step <= warm_up_steps_) return;
    throw ConfigError(fmt::format(
        "update.scheme: {} goes on only with the ranks and the grid of its checkpoint, {} ranks in "
        "{} replicas; resume with those",
        experiment_.update.scheme, manifest.ranks, manifest.replicas));
  });
  const std::filesystem::path checkpoints = folder_of(*resumed_);
  std::error_code error;
  continues_log_ =
      std::filesystem::equivalent(checkpoints, checkpoints_in(options_.run_folder), error);
  RunState state;
  if (!resumed_->exact) state = state_for_other_ranks(world_, *resumed_);
  agree_on(world_, [&] {
    if (!continues_log_ && log_.metrics_bytes() > 0) {
      throw ConfigError(options_.run_folder.string() +
                        " already holds another run than the checkpoint's; "
                        "choose another folder, or remove it");
    }
    resumed_->exact ? restore_exactly() : restore_averages(state);
  });
  // No rank has failed. First the later checkpoints: what those say of metrics.jsonl will not hold.
  set_aside_other_checkpoints();
  agree_on(world_, [&] {
    if (continues_log_) {
      log_.continue_metrics({.bytes = manifest.metrics_bytes,
                             .checksum = manifest.metrics_checksum,
                             .step = manifest.step});
    }
    log_.resume({.last_epoch = run_.last_epoch,
                 .best_accuracy = std::max(run_.best_accuracy, 0.0),
                 .seconds = run_.seconds},
                manifest.token_trace_bytes);
    if (continues_log_) return log_.expect_token_trace(manifest.token_trace_bytes);
    log_.copy_token_trace(checkpoints.parent_path() / "token_trace.jsonl",
                          manifest.token_trace_bytes);
  });
  last_checkpoint_ = run_.step;
  // The run's own folder must not be left without one: it would begin again from nothing.
  if (continues_log_ || !checkpoints_) return;
  traffic_.start(run_.traffic);
  save_checkpoint(now());
  complete_checkpoints();
}

void Trainer::restore_exactly() {
  const int rank = world_.rank();
  const Manifest& manifest = resumed_->manifest;
  copy_back(*resumed_, rank, Part::parameters, parameters_);
  copy_back(*resumed_, rank, Part::statistics, statistics_);
  scheme_->restore(resumed_->read(rank, Part::scheme));
  restore_run_state(read_run_state(resumed_->read(rank, Part::progress)));
  if (manifest.accuracy && !run_.epoch_open) {
    evaluated_.restore(*resumed_, rank, run_.step, parameters_, statistics_);
  }
  // Groups of ranks that average among themselves are those of a node by default.
  if (manifest.nodes != world_.nodes() && !averaging_groups_.empty() &&
      experiment_.update.group == 0) {
    log_.note(
        fmt::format("update.group: averaging groups are the ranks of a node; there are {} "
                    "nodes, and were {}",
                    world_.nodes(), manifest.nodes));
  }
  log_.note(fmt::format("resumed from {}: step {}, epoch {}{}", resumed_->path.string(), run_.step,
                        run_.epoch,
                        manifest.threads == threads_
                            ? ""
                            : fmt::format("; with {} threads instead of {} the bits will differ",
                                          threads_, manifest.threads)));
}

// Before the scheme is made, which may take parameters for its own.
void Trainer::take_averages() {
  if (!resumed_ || resumed_->exact) return;
  agree_on(world_, [&] {
    const ModelWeights mean = weights_of_checkpoint(resumed_->path, resumed_->manifest, model_);
    take_part(mean, layout_of(model_), layout_, parameters_, model_state().statistics);
  });
  grid_.shared_statistics().start_from_taken(batches_.micro_batch_sizes(), statistics_);
}

void Trainer::restore_averages(const RunState& state) {
  if (keeps_momenta()) scheme_->restore(resumed_->read(0, Part::scheme));
  restore_run_state(state);
  if (!keeps_momenta()) run_.momenta_from = run_.step;
  const Manifest& manifest = resumed_->manifest;
  log_.note(fmt::format(
      "resumed from {}: step {}, epoch {}; its {} ranks in {} replicas were others, so parameters "
      "and statistics are {}, {}, and the bits will differ",
      resumed_->path.string(), run_.step, run_.epoch, manifest.ranks, manifest.replicas,
      manifest.accuracy ? "those that were evaluated" : "means over its replicas",
      keeps_momenta() ? "momenta are kept" : "momenta and pending sums are zero"));
}

RunState Trainer::run_state() {
  RunState state = run_;
  state.seconds = log_.so_far().seconds;
  state.synchronous = synchronous_.until(run_.step);
  state.in_epoch = scheme_->counters() - epoch_before_;
  state.losses = losses_.state();
  state.traffic = run_.epoch_open ? traffic_.read() : Traffic{};
  return state;
}

void Trainer::restore_run_state(const RunState& state) {
  run_ = state;
  run_.last_epoch.injected = !injections_.empty();
  synchronous_.resume(state.step, state.synchronous);
  epoch_before_ = scheme_->counters() - state.in_epoch;
  losses_.restore(state.losses);
}

// Between steps.

void Trainer::end_step() {
  if (checkpoints_) checkpoints_->progress();
  if (run_.step % batches_.steps() == 0) return;  // end_epoch() follows
  const std::int64_t every = experiment_.checkpoint.every_steps;
  const bool due = every > 0 && run_.step / every != last_checkpoint_ / every;
  if (run_.step >= total_steps_) return;  // so does it where the run ends within an epoch
  if (check_->requested() == RunRequest::none && !due) return;
  if (run_.step > warm_up_steps_ && !scheme_->description().resumes_anywhere) {
    check_->postpone_request();
    return;
  }
  check_->settle_flags(run_.step);  // nothing that is not finite is kept
  const RunRequest request = check_->take_request();
  stopped_ = request == RunRequest::checkpoint_and_stop;
  save_checkpoint(now());
  if (request != RunRequest::none) check_->take_answered();
}

// What was requested during the evaluation counts too, and what was requested of ranks that went
// each at a pace of its own. A run that ends within an epoch keeps the moment before its
// evaluation: a longer one goes on with the epoch. A run that has left a checkpoint leaves one at
// its end, too: --resume auto would go back to the earlier one.
void Trainer::end_epoch(const std::optional<Moment>& before) {
  const Experiment::Checkpoint& options = experiment_.checkpoint;
  const RunRequest request = check_->take_request_of_epoch();
  stopped_ = request == RunRequest::checkpoint_and_stop && run_.step < total_steps_;
  const bool better = run_.last_epoch.accuracy > run_.best_accuracy;
  run_.best_accuracy = std::max(run_.best_accuracy, run_.last_epoch.accuracy);
  const bool due = (options.every_steps > 0 &&
                    run_.step / options.every_steps != last_checkpoint_ / options.every_steps) ||
                   (options.every_epochs > 0 && run_.epoch % options.every_epochs == 0) ||
                   (options.best && better) ||
                   (run_.step >= total_steps_ && (options.wanted() || last_checkpoint_ > 0));
  if (request != RunRequest::none || due) save_checkpoint_of_epoch(before ? *before : now());
  if (request != RunRequest::none) check_->take_answered();
}

// Messages that still travel count for the steps before.
Trainer::Moment Trainer::now() {
  complete_parameters();
  return {run_state(), log_.metrics_bytes(), log_.trace_bytes()};
}

void Trainer::save_checkpoint(const Moment& moment) {
  if (!checkpoints_) return;
  // The copies of the one before are freed before new ones are made.
  checkpoints_->finish();
  RankState state;
  state[static_cast<std::size_t>(Part::parameters)] = bytes_of(parameters_);
  state[static_cast<std::size_t>(Part::statistics)] = bytes_of(statistics_);
  state[static_cast<std::size_t>(Part::scheme)] = scheme_->save();
  state[static_cast<std::size_t>(Part::progress)] = to_bytes(moment.state);
  // Within an epoch the copy is of an older model.
  state[static_cast<std::size_t>(Part::evaluated)] =
      to_bytes(run_.epoch_open ? EvaluatedPart{} : evaluated_.part(run_.step, parameters_));
  Manifest about{.program = RONDO_VERSION,
                 .config = to_toml(experiment_),
                 .step = run_.step,
                 .epoch = run_.epoch,
                 .ranks = world_.size(),
                 .threads = threads_,
                 .replicas = grid_.grid().pc,
                 .nodes = world_.nodes(),
                 .lazy_convolutions = lazy_.names.size(),
                 .training_samples = dataset_->training.shape.n,
                 .training_data = digests_.training,
                 .test_data = digests_.test,
                 .mean = dataset_->mean,
                 .stddev = dataset_->stddev,
                 .class_names = dataset_->class_names,
                 .images = DescribedImages{.name = dataset_->name,
                                           .hwc = {model_.input.h, model_.input.w, model_.input.c},
                                           .classes = model_.classes},
                 .layers = checksum_of_layers(model_),
                 .metrics_bytes = moment.metrics_bytes,
                 .metrics_checksum = log_.metrics_checksum(moment.metrics_bytes),
                 .token_trace_bytes = moment.token_trace_bytes};
  // Between epochs the accuracy is that of these parameters; within one it would be an older one.
  if (!run_.epoch_open) about.accuracy = run_.last_epoch.accuracy;
  traffic_.leave_out_of([&] { checkpoints_->start(std::move(about), std::move(state)); });
  last_checkpoint_ = run_.step;
}

// A run that has trained all its steps goes on to its end: it can still leave its model.
void Trainer::save_checkpoint_of_epoch(const Moment& moment) {
  if (run_.step >= total_steps_) {
    try {
      complete_checkpoints();
    } catch (const DataError&) {  // the one before could not be written; all ranks know
      lost_checkpoint_ = std::current_exception();
      return;
    }
  }
  save_checkpoint(moment);
}

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
  agree_on(world_, [&] {
    if (failure != nullptr) std::rethrow_exception(failure);
  });
}

void Trainer::abandon_checkpoint() noexcept {
  if (checkpoints_) checkpoints_->abandon();
}

std::string Trainer::stop_report() const {
  if (!checkpoints_) return fmt::format("stopped as asked after step {}", run_.step);
  return fmt::format("stopped as asked after step {}; go on with --resume auto, or --resume {}",
                     run_.step, checkpoint_folder(options_.run_folder, run_.step).string());
}

}  // namespace rondo::train

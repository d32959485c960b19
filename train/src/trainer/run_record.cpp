// The reports of a run: before it, after a step, at a log point, after an epoch, at its end.

#include "trainer/run_record.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include <rondo/tensor/data_type.hpp>
#include <rondo/transport/world.hpp>

#include "checkpoint/resume.hpp"
#include "config/combinations.hpp"
#include "schemes/make_scheme.hpp"
#include "trainer/grid_membership.hpp"
#include "trainer/step_link.hpp"

namespace rondo::train {
namespace {

std::string counted(std::int64_t count, const std::string& noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace

RunRecord::RunRecord(TrainedState& state, RunLog& log)
    : state_(state),
      log_(log),
      traffic_(state.world),
      losses_(state.world, traffic_),
      injections_(injections_of(state.experiment, state.world.fabric(), state.world.nodes())) {}

StartEvent RunRecord::start_event() const {
  StartEvent event{.config = to_toml(state_.experiment),
                   .ranks = state_.world.size(),
                   .threads = state_.threads,
                   .nodes = state_.world.nodes(),
                   .route = state_.world.route(),
                   .global_batch = state_.experiment.train.global_batch,
                   .data = state_.dataset->name,
                   .training_images = state_.dataset->training.shape.n,
                   .test_images = state_.dataset->test.shape.n,
                   .model = state_.model.name,
                   .parameters = static_cast<std::int64_t>(layout_of(state_.model).parameter_count),
                   .seed = state_.experiment.train.seed,
                   .steps_per_epoch = state_.batches.steps(),
                   .total_steps = state_.total_steps,
                   .scheme = state_.scheme_name(),
                   .lazy_layers = state_.lazy.names,
                   .injected = injections_};
  for (const transport::RankInfo& rank : state_.world.ranks()) event.hosts.push_back(rank.host);
  for (int rank = 0; rank < state_.world.size(); ++rank) {
    const ProcessGrid grid = state_.grid.grid();
    event.rank_batches.push_back(
        even_range(event.global_batch, grid.pc, grid.replica_of(rank)).size());
  }
  return event;
}

void RunRecord::announce() const {
  if (!log_.active()) return;
  const StartEvent event = start_event();
  const auto note = [&]<typename... Part>(fmt::format_string<Part...> format, Part&&... parts) {
    log_.note(fmt::format(format, std::forward<Part>(parts)...));
  };
  // Shares differ by one at most: the first is the smallest, the last the largest.
  const std::int64_t smallest = event.rank_batches.front();
  const std::int64_t largest = event.rank_batches.back();
  const tensor::Shape& image = state_.model.input;
  note("model {}: {}, {} classes", event.model, counted(event.parameters, "parameter"),
       state_.model.classes);
  note("data {}: {} training and {} test images of {}x{}x{}", event.data, event.training_images,
       event.test_images, image.h, image.w, image.c);
  if (!state_.dataset->note.empty()) note("data {}: {}", event.data, state_.dataset->note);
  note("ranks {} x {}{}", event.ranks, counted(event.threads, "thread"),
       state_.world.oversubscribed() ? ", more than there are CPUs" : "");
  for (const std::string& line :
       grid_report(state_.model, state_.grid.choice(), state_.experiment)) {
    log_.note(line);
  }
  note("memory {} MiB in the arrays of rank {}", state_.account.in_use() >> 20U,
       state_.world.rank());
  if (event.nodes > 1) note("nodes {}, joined by {}", event.nodes, event.route);
  note("batch {} in all, {} per {}; {} per epoch, {} in all", event.global_batch,
       smallest == largest ? fmt::to_string(smallest) : fmt::format("{} or {}", smallest, largest),
       state_.grid.grid().pr > 1 ? "replica" : "rank", counted(event.steps_per_epoch, "step"),
       event.total_steps);
  announce_updates();
  announce_learning_rate();
  for (const std::string& injection : injections_) log_.note("injected: " + injection);
  const auto& resumed = state_.resumed;
  log_.start(state_.experiment);
  if (!resumed || !resumed->in_run_folder || !log_.has_start()) log_.write(event);
  if (!resumed) return;
  log_.write(ResumeEvent{.part = event,
                         .epoch = state_.run.epoch,
                         .total_step = state_.run.step,
                         .checkpoint = resumed->path.filename().string()});
}

void RunRecord::note_resumed() const {
  const ResumedCheckpoint& from = *state_.resumed;
  const Manifest& manifest = from.manifest;
  std::string note = fmt::format("resumed from {}: step {}, epoch {}", from.path.string(),
                                 state_.run.step, state_.run.epoch);
  if (!from.exact) {
    note += fmt::format(
        "; its {} ranks in {} replicas were others, so parameters and statistics are {}, {}, and "
        "the bits will differ",
        manifest.ranks, manifest.replicas,
        manifest.accuracy ? "those that were evaluated" : "means over its replicas",
        state_.keeps_momenta() ? "momenta are kept" : "momenta and pending sums are zero");
    return log_.note(note);
  }
  // Groups of ranks that average among themselves are those of a node by default.
  if (manifest.nodes != state_.world.nodes() && !state_.level_groups.empty() &&
      state_.experiment.update.group == 0) {
    log_.note(
        fmt::format("update.group: averaging groups are the ranks of a node; there are {} "
                    "nodes, and were {}",
                    state_.world.nodes(), manifest.nodes));
  }
  if (manifest.threads != state_.threads) {
    note += fmt::format("; with {} threads instead of {} the bits will differ", state_.threads,
                        manifest.threads);
  }
  log_.note(note);
}

void RunRecord::announce_updates() const {
  std::string note = "updates " + state_.scheme_name();
  const std::int64_t warm_up = std::min(state_.warm_up_steps, state_.total_steps);
  if (warm_up > 0 && scheme_of(state_.experiment.update).warm_up != sync::WarmUp::pointless) {
    note += warm_up < state_.total_steps
                ? ", after " + counted(warm_up, "synchronous step")
                : " do not begin: the whole run is their synchronous warm-up "
                  "(update.warmup_epochs)";
  }
  const std::int64_t left_out = state_.dataset->training.shape.n - state_.batches.epoch_samples();
  if (left_out > 0) {
    note += "; an epoch's last " + counted(left_out, "sample") + " fill no batch and are left out";
  }
  if (state_.experiment.train.reduce_precision == tensor::DataType::bf16) {
    const bool sends_gradients =
        scheme_of(state_.experiment.update).exchange == sync::Exchange::gradients;
    note +=
        std::string("; ") + (sends_gradients ? "gradients" : "displacements") + " are sent as bf16";
  }
  log_.note(note);
  if (state_.lazy.names.empty()) return;
  log_.note("lazy " + counted(static_cast<std::int64_t>(state_.lazy.names.size()), "convolution") +
            ", up to " + state_.lazy.names.back() + " (lazy_layers = \"" +
            state_.experiment.update.lazy_layers + "\")");
}

// Notes where the learning rate is not what a user may expect.
void RunRecord::announce_learning_rate() const {
  const std::int64_t last = state_.total_steps - 1;
  if (state_.learning_rate.warmup_steps > state_.total_steps) {
    log_.note(
        fmt::format("learning rate: the run ends within its warm-up, at {:.3g} of {:.3g} "
                    "(optimizer.warmup_epochs)",
                    state_.learning_rate.at(last), state_.learning_rate.base));
  }
  const auto is_behind = [&](std::int64_t milestone) { return milestone > last; };
  if (state_.learning_rate.decay == sync::Decay::steps &&
      std::ranges::all_of(state_.learning_rate.milestones, is_behind)) {
    log_.note("learning rate: the run ends before the first of optimizer.milestones");
  }
  if (!state_.resumed || state_.run.step == 0 ||
      state_.learning_rate.decay == sync::Decay::exponential)
    return;
  const Experiment before = experiment_of(state_.resumed->manifest);
  const std::int64_t earlier_steps = before.train.epochs * state_.batches.steps();
  const double earlier =
      learning_rate_of(before, state_.batches.steps(), earlier_steps).at(state_.run.step - 1);
  if (earlier == state_.learning_rate.at(state_.run.step - 1)) return;
  log_.note(fmt::format(
      "learning rate: step {} had {:.3g}, and step {} has {:.3g}, because the "
      "schedule is that of a run of {} epochs now and not of {} (train.epochs)",
      state_.run.step, earlier, state_.run.step + 1, state_.learning_rate.at(state_.run.step),
      state_.experiment.train.epochs, before.train.epochs));
}

void RunRecord::begin_epoch() {
  // The run was resumed within an epoch: its figures go on from the checkpoint's.
  if (state_.run.epoch_open) {
    traffic_.start(state_.run.traffic);
    return report_progress();  // perhaps no step is left
  }
  ++state_.run.epoch;
  state_.run.epoch_first = state_.run.step;
  epoch_before_ = state_.scheme->counters();
  state_.run.epoch_open = true;
  losses_.start();
  traffic_.start();
}

double RunRecord::report_step() {
  const LossSums window = losses_.reduce();
  log_.write(
      StepEvent{.epoch = state_.run.epoch,
                .step = state_.run.step - state_.run.epoch_first,
                .total_step = state_.run.step,
                .loss = window.mean_loss(),
                .training_accuracy = window.accuracy(),
                .learning_rate = state_.learning_rate.at(state_.run.step - 1),
                .images_per_second = per_second(losses_.total().samples, traffic_.read().seconds)});
  return window.mean_loss();
}

void RunRecord::report_traces() {
  for (const sync::LazyWindow& window : state_.traces.windows) log_.write(window);
  state_.traces.windows.clear();
  for (const sync::Round& round : state_.traces.rounds) log_.write(round);
  state_.traces.rounds.clear();
}

void RunRecord::report_pushes() {
  // All ranks of a replica take the same turns.
  if (!state_.grid.reports_for_replica()) state_.traces.pushes.clear();
  traffic_.leave_out_of([&] { log_.pushes(gather_pushes(state_.world, state_.traces.pushes)); });
  state_.traces.pushes.clear();
}

void RunRecord::report_progress() const {
  if (!log_.active()) return;
  const Traffic traffic = traffic_.read();
  const bool paced = state_.is_paced_now();
  const std::int64_t done = state_.run.step - state_.run.epoch_first;
  // Ranks that go at a pace of their own have no common step: their progress is counted in samples.
  const std::int64_t before =
      (state_.run.epoch_first - state_.warm_up_steps) * state_.experiment.train.global_batch;
  const std::int64_t trained =
      paced ? std::max<std::int64_t>(state_.paced_samples() - before, 0)
            : std::min(done * state_.experiment.train.global_batch, state_.batches.epoch_samples());
  const double per_step = done > 0 ? traffic.seconds / static_cast<double>(done) : 0.0;
  log_.progress(
      {.epoch = state_.run.epoch,
       .epochs = (state_.total_steps + state_.batches.steps() - 1) / state_.batches.steps(),
       .step = done,
       .steps = state_.batches.steps(),
       .loss = losses_.own().mean_loss(),
       .accuracy = losses_.own().accuracy(),
       .images_per_second = per_second(static_cast<double>(trained), traffic.seconds),
       .communication_share = traffic.communication_share(),
       .seconds_left = per_step * static_cast<double>(state_.total_steps - state_.run.step),
       .samples = paced ? trained : 0,
       .epoch_samples = paced ? state_.batches.epoch_samples() : 0,
       .injected = !injections_.empty()});
}

// One allreduce for all figures of an epoch. Seconds and reductions are means over the ranks, bytes
// sums.
Work RunRecord::work_since(const sync::SchemeCounters& before) {
  const Traffic own = traffic_.read();
  const sync::SchemeCounters done = state_.scheme->counters() - before;
  const auto as_double = [](std::uint64_t count) { return static_cast<double>(count); };
  const auto sums = sum_over_ranks(
      state_.world, std::array{own.seconds, own.communicating, own.waiting, own.bytes,
                               as_double(done.global_reductions), as_double(done.local_reductions),
                               as_double(done.global_bytes), as_double(done.local_bytes),
                               as_double(done.lazy_reductions)});
  const auto mean = [&](double sum) { return sum / state_.world.size(); };
  const auto count = [](double number) { return static_cast<std::uint64_t>(std::llround(number)); };
  const Work work{.seconds = mean(sums[0]),
                  .communicating = mean(sums[1]),
                  .waiting = mean(sums[2]),
                  .counters = {.global_reductions = count(mean(sums[4])),
                               .lazy_reductions = count(mean(sums[8])),
                               .local_reductions = count(mean(sums[5])),
                               .global_bytes = count(sums[6]),
                               .local_bytes = count(sums[7])},
                  .bytes_sent = count(sums[3])};
  state_.run.work += work;
  return work;
}

void RunRecord::report_broken_images() {
  if (!state_.dataset->training.source) return;
  // All ranks of a replica read the same images.
  std::int64_t own = 0;
  if (state_.grid.reports_for_replica()) {
    own = state_.batches.skipped() + (state_.own_batches ? state_.own_batches->skipped() : 0);
  }
  const auto [skipped] = sum_over_ranks(state_.world, std::array{static_cast<double>(own)});
  if (skipped == 0.0) return;
  log_.note("data " + counted(static_cast<std::int64_t>(skipped), "time") +
            " so far, another image stood in for a broken one (data.broken = \"skip\")");
}

Work RunRecord::sum_up_epoch() {
  static_cast<void>(losses_.reduce());
  return work_since(epoch_before_);
}

void RunRecord::end_epoch(const Work& work, const std::optional<TestFigures>& tested) {
  if (tested) report_broken_images();
  const LossSums& losses = losses_.total();
  state_.run.trained_samples += losses.samples;
  if (!tested) return;
  state_.run.last_epoch = {.epoch = state_.run.epoch,
                           .loss = losses.mean_loss(),
                           .accuracy = tested->sums.accuracy(),
                           .training_accuracy = losses.accuracy(),
                           .test_loss = tested->sums.mean_loss(),
                           .images_per_second = per_second(losses.samples, work.seconds),
                           .seconds = work.seconds,
                           .evaluation_seconds = tested->seconds,
                           .communication_share = per_second(work.communicating, work.seconds),
                           .wait_share = per_second(work.waiting, work.seconds),
                           .global_reductions = work.counters.global_reductions,
                           .local_reductions = work.counters.local_reductions,
                           .global_bytes = work.counters.global_bytes,
                           .local_bytes = work.counters.local_bytes,
                           .evaluation_reductions = tested->reductions,
                           .bytes_sent = work.bytes_sent,
                           .injected = !injections_.empty(),
                           .parameter_hash = tested->parameter_hash};
  log_.epoch(state_.run.last_epoch);
}

// Changes that a scheme still holds back, such as an open window, go into the parameters.
void RunRecord::flush() {
  const sync::SchemeCounters before = state_.scheme->counters();
  traffic_.start();
  state_.scheme->flush();
  static_cast<void>(work_since(before));
  report_traces();
  if (is_paced(state_.experiment)) report_pushes();
}

// The traffic of an epoch is summed up at its end; an epoch that fails counts nothing, on both
// sides of a comparison.
RunSummary RunRecord::summary(const std::string& reason, bool by_error) {
  const bool lazy = scheme_of(state_.experiment.update).windows;
  const bool fails_within = by_error && state_.run.epoch_open;
  const SynchronousWork synchronous =
      synchronous_until(fails_within ? state_.run.epoch_first : state_.run.step);
  return {
      .reason = reason,
      .scheme = state_.scheme_name(),
      .seconds = state_.run.seconds + log_.seconds(),
      .epochs = state_.run.last_epoch.epoch,
      .steps = state_.run.step,
      .samples = static_cast<std::int64_t>(state_.run.trained_samples),
      .final_accuracy = state_.run.last_epoch.accuracy,
      .best_accuracy = std::max({state_.run.best_accuracy, state_.run.last_epoch.accuracy, 0.0}),
      .training_seconds = state_.run.work.seconds,
      .communication_seconds = state_.run.work.communicating,
      .wait_seconds = state_.run.work.waiting,
      .global_reductions = state_.run.work.counters.global_reductions,
      .local_reductions = state_.run.work.counters.local_reductions,
      .synchronous_reductions = synchronous.reductions,
      .global_bytes = state_.run.work.counters.global_bytes,
      .local_bytes = state_.run.work.counters.local_bytes,
      .synchronous_bytes = synchronous.bytes,
      .bytes_sent = state_.run.work.bytes_sent,
      .synchronous_bytes_sent = synchronous.bytes_sent,
      .lazy_iterations =
          lazy ? std::max<std::int64_t>(state_.run.step - state_.warm_up_steps, 0) : 0,
      .lazy_reductions = state_.run.work.counters.lazy_reductions,
      .peak_bytes = state_.account.peak(),
      .injected = injections_};
}

RunState RunRecord::run_state() {
  RunState state = state_.run;
  state.seconds += log_.seconds();
  state.synchronous = synchronous_until(state_.run.step);
  state.in_epoch = state_.scheme->counters() - epoch_before_;
  state.losses = losses_.state();
  state.traffic = state_.run.epoch_open ? traffic_.read() : Traffic{};
  return state;
}

void RunRecord::restore(const RunState& before) {
  state_.run = before;
  state_.run.last_epoch.injected = !injections_.empty();
  first_ = before.step;
  epoch_before_ = state_.scheme->counters() - before.in_epoch;
  losses_.restore(before.losses);
}

// The traffic that synchronous updates would have had in the steps before step `end`. It follows
// from the model, the grid and the sizes of batches, so that nothing is counted in a step. A run
// may go on with other ranks or another grid: of the steps before, it keeps what its checkpoint
// says.
SynchronousWork RunRecord::synchronous_until(std::int64_t end) {
  const std::int64_t in_epoch = state_.batches.steps();
  const std::int64_t all = end - first_;
  const std::int64_t last = end / in_epoch - first_ / in_epoch;  // these may be short
  const auto steps = static_cast<std::uint64_t>(all);
  const std::uint64_t gradient_bytes =
      state_.grid.reduced_by_all() * tensor::size_of(state_.experiment.train.reduce_precision);
  return state_.run.synchronous +
         SynchronousWork{.reductions = gradient_bytes > 0 ? steps : 0,
                         .bytes = steps * gradient_bytes,
                         .bytes_sent = synchronously_sent(all - last, 0) +
                                       synchronously_sent(last, in_epoch - 1)};
}

// By all ranks, in `count` steps like `step`. To lay a large model out for many ranks takes a
// while, so that is done once for each size of a batch.
std::uint64_t RunRecord::synchronously_sent(std::int64_t count, std::int64_t step) {
  if (count == 0) return 0;
  const std::int64_t samples = state_.batches.samples(step);
  auto known = sent_.find(samples);
  if (known == sent_.end()) {
    known =
        sent_.emplace(samples, state_.grid.sent_by_all(state_.model, samples, state_.experiment))
            .first;
  }
  return static_cast<std::uint64_t>(count) * known->second;
}

}  // namespace rondo::train

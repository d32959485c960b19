// The reports of a Trainer: before the run, after a step, at a log point, after an epoch.
// Everything that is collective here (sums over ranks, the evaluation) is called by all ranks,
// though rank 0 alone writes it down.

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include <rondo/transport/world.hpp>

#include "checkpoint/resume.hpp"
#include "config/combinations.hpp"
#include "schemes/make_scheme.hpp"
#include "trainer/grid_membership.hpp"
#include "trainer/meters.hpp"
#include "trainer/trainer.hpp"

namespace rondo::train {
namespace {

std::string counted(std::int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string size_of_images(const tensor::Shape& shape) {
  return std::to_string(shape.h) + "x" + std::to_string(shape.w) + "x" + std::to_string(shape.c);
}

}  // namespace

StartEvent Trainer::start_event() const {
  StartEvent event{.config = to_toml(experiment_),
                   .ranks = world_.size(),
                   .threads = threads_,
                   .nodes = world_.nodes(),
                   .route = world_.route(),
                   .global_batch = experiment_.train.global_batch,
                   .data = dataset_->name,
                   .training_images = dataset_->training.shape.n,
                   .test_images = dataset_->test.shape.n,
                   .model = model_.name,
                   .parameters = static_cast<std::int64_t>(layout_of(model_).parameter_count),
                   .seed = experiment_.train.seed,
                   .steps_per_epoch = batches_.steps(),
                   .total_steps = total_steps_,
                   .scheme = scheme_name(),
                   .lazy_layers = lazy_.names,
                   .injected = injections_};
  for (const transport::RankInfo& rank : world_.ranks()) event.hosts.push_back(rank.host);
  for (int rank = 0; rank < world_.size(); ++rank) {
    const ProcessGrid grid = grid_.grid();
    event.rank_batches.push_back(
        even_range(event.global_batch, grid.pc, grid.replica_of(rank)).size());
  }
  return event;
}

void Trainer::announce() const {
  if (!log_.active()) return;
  const StartEvent event = start_event();
  // Shares differ by one at most: the first is the smallest, the last the largest.
  const std::string smallest = std::to_string(event.rank_batches.front());
  const std::string largest = std::to_string(event.rank_batches.back());
  log_.note("model " + event.model + ": " + counted(event.parameters, "parameter") + ", " +
            std::to_string(model_.classes) + " classes");
  log_.note("data " + event.data + ": " + std::to_string(event.training_images) + " training and " +
            std::to_string(event.test_images) + " test images of " + size_of_images(model_.input));
  if (!dataset_->note.empty()) log_.note("data " + event.data + ": " + dataset_->note);
  log_.note("ranks " + std::to_string(event.ranks) + " x " + counted(event.threads, "thread") +
            (world_.oversubscribed() ? ", more than there are CPUs" : ""));
  for (const std::string& line : grid_report(model_, grid_.choice(), experiment_)) {
    log_.note(line);
  }
  constexpr std::size_t mebibyte = std::size_t{1} << 20U;
  log_.note("memory " + std::to_string(account_.in_use() / mebibyte) +
            " MiB in the arrays of rank " + std::to_string(world_.rank()));
  if (event.nodes > 1) {
    log_.note("nodes " + std::to_string(event.nodes) + ", joined by " + event.route);
  }
  log_.note("batch " + std::to_string(event.global_batch) + " in all, " +
            (smallest == largest ? smallest : smallest + " or " + largest) +
            (grid_.grid().pr > 1 ? " per replica; " : " per rank; ") +
            counted(event.steps_per_epoch, "step") + " per epoch, " +
            std::to_string(event.total_steps) + " in all");
  announce_updates();
  announce_learning_rate();
  for (const std::string& injection : injections_) log_.note("injected: " + injection);
  if (!resumed_) {
    log_.start(event, experiment_);
    return;
  }
  const bool goes_on = continues_log_ && log_.has_start();
  log_.start({.part = event,
              .epoch = run_.epoch,
              .total_step = run_.step,
              .checkpoint = resumed_->path.filename().string()},
             goes_on, experiment_);
}

void Trainer::announce_updates() const {
  std::string note = "updates " + scheme_name();
  const std::int64_t warm_up = std::min(warm_up_steps_, total_steps_);
  if (warm_up > 0 && scheme_of(experiment_.update).warm_up != sync::WarmUp::pointless) {
    note += warm_up < total_steps_ ? ", after " + counted(warm_up, "synchronous step")
                                   : " do not begin: the whole run is their synchronous warm-up "
                                     "(update.warmup_epochs)";
  }
  const std::int64_t left_out = dataset_->training.shape.n - batches_.epoch_samples();
  if (left_out > 0) {
    note += "; an epoch's last " + counted(left_out, "sample") + " fill no batch and are left out";
  }
  if (experiment_.train.reduce_precision == tensor::DataType::bf16) {
    const bool sends_gradients =
        scheme_of(experiment_.update).exchange == sync::Exchange::gradients;
    note +=
        std::string("; ") + (sends_gradients ? "gradients" : "displacements") + " are sent as bf16";
  }
  log_.note(note);
  if (lazy_.names.empty()) return;
  log_.note("lazy " + counted(static_cast<std::int64_t>(lazy_.names.size()), "convolution") +
            ", up to " + lazy_.names.back() + " (lazy_layers = \"" +
            experiment_.update.lazy_layers + "\")");
}

// Notes where the learning rate is not what a user may expect.
void Trainer::announce_learning_rate() const {
  const std::int64_t last = total_steps_ - 1;
  if (learning_rate_.warmup_steps > total_steps_) {
    log_.note(
        fmt::format("learning rate: the run ends within its warm-up, at {:.3g} of {:.3g} "
                    "(optimizer.warmup_epochs)",
                    learning_rate_.at(last), learning_rate_.base));
  }
  const auto is_behind = [&](std::int64_t milestone) { return milestone > last; };
  if (learning_rate_.decay == sync::Decay::steps &&
      std::ranges::all_of(learning_rate_.milestones, is_behind)) {
    log_.note("learning rate: the run ends before the first of optimizer.milestones");
  }
  if (!resumed_ || run_.step == 0 || learning_rate_.decay == sync::Decay::exponential) return;
  const Experiment before = experiment_of(resumed_->manifest);
  const std::int64_t earlier_steps = before.train.epochs * batches_.steps();
  const double earlier =
      learning_rate_of(before, batches_.steps(), earlier_steps).at(run_.step - 1);
  if (earlier == learning_rate_.at(run_.step - 1)) return;
  log_.note(
      fmt::format("learning rate: step {} had {:.3g}, and step {} has {:.3g}, because the "
                  "schedule is that of a run of {} epochs now and not of {} (train.epochs)",
                  run_.step, earlier, run_.step + 1, learning_rate_.at(run_.step),
                  experiment_.train.epochs, before.train.epochs));
}

void Trainer::report_step() {
  const LossSums window = reduce_losses();
  log_.write(
      StepEvent{.epoch = run_.epoch,
                .step = run_.step - run_.epoch_first,
                .total_step = run_.step,
                .loss = window.mean_loss(),
                .training_accuracy = window.accuracy(),
                .learning_rate = learning_rate_.at(run_.step - 1),
                .images_per_second = per_second(losses_.total().samples, traffic_.read().seconds)});
  if (!sweeps() || !options_.diverges(window.mean_loss())) return;
  diverged_ = true;
  total_steps_ = run_.step;
}

void Trainer::report_traces() {
  for (const sync::LazyWindow& window : traces_.windows) log_.write(window);
  traces_.windows.clear();
  for (const sync::Round& round : traces_.rounds) log_.write(round);
  traces_.rounds.clear();
}

void Trainer::report_progress() const {
  if (!log_.active()) return;
  const Traffic traffic = traffic_.read();
  const bool paced = is_paced_now();
  const std::int64_t done = run_.step - run_.epoch_first;
  // Ranks that go at a pace of their own have no common step: their progress is counted in samples.
  const std::int64_t before = (run_.epoch_first - warm_up_steps_) * experiment_.train.global_batch;
  const std::int64_t trained =
      paced ? std::max<std::int64_t>(paced_samples() - before, 0)
            : std::min(done * experiment_.train.global_batch, batches_.epoch_samples());
  const double per_step = done > 0 ? traffic.seconds / static_cast<double>(done) : 0.0;
  log_.progress({.epoch = run_.epoch,
                 .epochs = (total_steps_ + batches_.steps() - 1) / batches_.steps(),
                 .step = done,
                 .steps = batches_.steps(),
                 .loss = losses_.own().mean_loss(),
                 .accuracy = losses_.own().accuracy(),
                 .images_per_second = per_second(static_cast<double>(trained), traffic.seconds),
                 .communication_share = traffic.communication_share(),
                 .seconds_left = per_step * static_cast<double>(total_steps_ - run_.step),
                 .samples = paced ? trained : 0,
                 .epoch_samples = paced ? batches_.epoch_samples() : 0,
                 .injected = !injections_.empty()});
}

// One allreduce for all figures of an epoch. Seconds and reductions are means over the ranks, bytes
// sums.
Work Trainer::work_since(const sync::SchemeCounters& before) {
  const Traffic own = traffic_.read();
  const sync::SchemeCounters done = scheme_->counters() - before;
  const auto as_double = [](std::uint64_t count) { return static_cast<double>(count); };
  const auto sums = sum_over_ranks(
      world_, std::array{own.seconds, own.communicating, own.waiting, own.bytes,
                         as_double(done.global_reductions), as_double(done.local_reductions),
                         as_double(done.global_bytes), as_double(done.local_bytes),
                         as_double(done.lazy_reductions)});
  const auto mean = [&](double sum) { return sum / world_.size(); };
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
  run_.work += work;
  return work;
}

void Trainer::report_broken_images() {
  if (!dataset_->training.source) return;
  // All ranks of a replica read the same images.
  std::int64_t own = 0;
  if (grid_.reports_for_replica()) {
    own = batches_.skipped() + (own_batches_ ? own_batches_->skipped() : 0);
  }
  const auto [skipped] = sum_over_ranks(world_, std::array{static_cast<double>(own)});
  if (skipped == 0.0) return;
  log_.note("data " + counted(static_cast<std::int64_t>(skipped), "time") +
            " so far, another image stood in for a broken one (data.broken = \"skip\")");
}

void Trainer::report_epoch() {
  static_cast<void>(reduce_losses());
  const Work work = work_since(epoch_before_);
  const std::uint64_t evaluated_before = scheme_->counters().evaluation_reductions;
  const Evaluation evaluation = evaluate();
  report_broken_images();
  const LossSums& losses = losses_.total();
  run_.trained_samples += losses.samples;
  run_.last_epoch = {
      .epoch = run_.epoch,
      .loss = losses.mean_loss(),
      .accuracy = evaluation.sums.accuracy(),
      .training_accuracy = losses.accuracy(),
      .test_loss = evaluation.sums.mean_loss(),
      .images_per_second = per_second(losses.samples, work.seconds),
      .seconds = work.seconds,
      .evaluation_seconds = evaluation.seconds,
      .communication_share = per_second(work.communicating, work.seconds),
      .wait_share = per_second(work.waiting, work.seconds),
      .global_reductions = work.counters.global_reductions,
      .local_reductions = work.counters.local_reductions,
      .global_bytes = work.counters.global_bytes,
      .local_bytes = work.counters.local_bytes,
      .evaluation_reductions = scheme_->counters().evaluation_reductions - evaluated_before,
      .bytes_sent = work.bytes_sent,
      .injected = !injections_.empty(),
      .parameter_hash = evaluation.parameter_hash};
  log_.epoch(run_.last_epoch);
}

// The part of report_epoch() that the summary needs, where nothing is evaluated.
void Trainer::close_epoch() {
  static_cast<void>(reduce_losses());
  static_cast<void>(work_since(epoch_before_));
  run_.trained_samples += losses_.total().samples;
}

// One of the user's own has a name of its own.
std::string Trainer::scheme_name() const {
  return options_.make_scheme && scheme_ ? std::string(scheme_->description().name)
                                         : experiment_.update.scheme;
}

// The traffic of an epoch is summed up at its end; an epoch that fails counts nothing, on both
// sides of a comparison.
RunSummary Trainer::summary(const std::string& reason, bool by_error) {
  const bool lazy = scheme_of(experiment_.update).windows;
  const bool fails_within = by_error && run_.epoch_open;
  const SynchronousWork synchronous =
      synchronous_.until(fails_within ? run_.epoch_first : run_.step);
  return {.reason = reason,
          .scheme = scheme_name(),
          .steps = run_.step,
          .samples = static_cast<std::int64_t>(run_.trained_samples),
          .training_seconds = run_.work.seconds,
          .communication_seconds = run_.work.communicating,
          .wait_seconds = run_.work.waiting,
          .global_reductions = run_.work.counters.global_reductions,
          .local_reductions = run_.work.counters.local_reductions,
          .synchronous_reductions = synchronous.reductions,
          .global_bytes = run_.work.counters.global_bytes,
          .local_bytes = run_.work.counters.local_bytes,
          .synchronous_bytes = synchronous.bytes,
          .bytes_sent = run_.work.bytes_sent,
          .synchronous_bytes_sent = synchronous.bytes_sent,
          .lazy_iterations = lazy ? std::max<std::int64_t>(run_.step - warm_up_steps_, 0) : 0,
          .lazy_reductions = run_.work.counters.lazy_reductions,
          .peak_bytes = account_.peak(),
          .injected = injections_};
}

}  // namespace rondo::train

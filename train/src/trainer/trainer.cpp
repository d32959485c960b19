// The loops of a run over epochs and steps, and what comes of them: the test set's loss after an
// epoch, and the model after the last.
//
// After an epoch every rank evaluates a part of the test set on a copy of the parameters. Under
// schemes whose ranks do not step together, a rank trains mini-batches of its own until the scheme
// parks all ranks at the end of an epoch.
//
// The rest of a Trainer: trainer_setup.cpp makes what it owns, trainer_checkpoint.cpp saves it and
// goes on from a checkpoint, trainer_reports.cpp tells the log.

#include "trainer/trainer.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <exception>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <rondo/train/step_profile.hpp>
#include <rondo/transport/error.hpp>
#include <rondo/transport/world.hpp>

#include "checkpoint/resume.hpp"
#include "config/combinations.hpp"
#include "executor/lowering.hpp"
#include "schemes/scheme_plugin.hpp"
#include "trainer/agreement.hpp"
#include "trainer/prepare.hpp"
#include "weights/model_weights.hpp"

namespace rondo::train {
namespace {

void finish(Trainer& trainer) {
  trainer.finish();
  trainer.save_model();
}

// Ranks that throw NumericError alike can complete the last checkpoint from before. Where ranks
// step alone, the World is aborted: a checkpoint that was not complete stays unfinished, as where a
// program's own part throws NumericError on one rank.
void run(const transport::World& world, Trainer& trainer) {
  trainer.join();
  trainer.announce();
  if (trainer.trains()) trainer.remove_model();
  try {
    while (!trainer.done()) trainer.run_epoch();
  } catch (const NumericError& numeric) {
    if (world.size() > 1 && !is_thrown_by_all()) throw;
    try {
      trainer.complete_checkpoints();
    } catch (const transport::Error&) {  // NOLINT(bugprone-empty-catch): the first error matters
    } catch (const DataError& error) {   // on all ranks
      throw_on_all(
          fmt::format("{}; the last checkpoint is not complete: {}", numeric.what(), error.what()));
    }
    throw;
  }
  const bool saves_model = !trainer.stopped() && !trainer.sweeps();
  try {
    trainer.complete_checkpoints();
  } catch (const DataError&) {
    // On all ranks. Without the checkpoint the disk has room for the model.
    if (saves_model) finish(trainer);
    throw;
  }
  if (saves_model) finish(trainer);
}

std::string reason_of_end(const Trainer& trainer) {
  if (trainer.stopped()) return "stopped";
  if (trainer.diverged()) return "diverged";
  return trainer.cut_short() ? "max_steps" : "completed";
}

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
  agree_on(world, [&] { options.make_scheme = own_scheme_of(experiment, given); });
  expect_same_parts(world, given);
  // Rank 0 may have to wait for an earlier run in the folder.
  if (world.rank() != 0) log.emplace(options, world.rank());
  agree_on_first_rank(world, [&] { log.emplace(options, 0); });
  std::optional<Experiment::Grid> earlier;
  agree_on(world, [&] {
    if (world.rank() == 0 && !options.resume.empty()) {
      earlier = grid_of_earlier_run(options.run_folder, options.resume, world.size(), experiment);
    }
  });
  PreparedRun prepared =
      prepare_run(world, experiment, options.dataset, options.model, earlier, options.team);
  agree_on(world, [&] {
    if (!prepared.planned.empty()) log->note(prepared.planned);
  });
  agree_on(world, [&] { trainer.emplace(world, std::move(prepared), std::move(options), *log); });
  try {
    end_together(world, [&] {
      run(world, *trainer);
      // Written as the last thing: a file without an end event is of a run that was killed, or goes
      // on.
      const RunSummary summary = trainer->summary(reason_of_end(*trainer));
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

const EpochMetrics& Trainer::run_epoch() {
  // The run was resumed within an epoch: its figures go on from the checkpoint's.
  if (run_.epoch_open) {  // goes on within it
    traffic_.start(run_.traffic);
    report_progress();  // perhaps no step is left
  } else {
    ++run_.epoch;
    run_.epoch_first = run_.step;
    epoch_before_ = scheme_->counters();
    run_.epoch_open = true;
    losses_.start();
    traffic_.start();
  }
  if (is_paced_now()) {
    run_paced_steps();
  } else {
    run_steps();
  }
  // Stopped within the epoch: the checkpoint has been taken, and nothing is evaluated.
  if (stopped_) {
    close_epoch();
    return run_.last_epoch;
  }
  // Ranks that go at a pace of their own may have done a little more than a whole epoch at its end.
  const std::int64_t end = is_paced(experiment_) ? total_steps_ : run_.step;
  const bool ends_within = run_.step >= total_steps_ && end % batches_.steps() != 0;
  std::optional<Moment> before;
  if (ends_within) before = now();
  if (sweeps()) {
    close_epoch();
  } else {
    report_epoch();
  }
  run_.epoch_open = false;
  end_epoch(before);
  return run_.last_epoch;
}

void Trainer::run_steps() {
  bool more = run_.step < total_steps_;
  while (more) {
    run_step();
    report_traces();
    const std::int64_t in_epoch = run_.step - run_.epoch_first;
    if (in_epoch % experiment_.train.log_every == 0) report_step();
    report_progress();
    end_step();
    more = run_.step < total_steps_ && run_.step % batches_.steps() != 0 && !stopped_;
  }
}

// Steps 1 to 5 of train/README.md.
void Trainer::run_step() {
  const StepProfile::Step profiled(options_.profile, run_.step + 1);
  const std::int64_t mine = batches_.own_samples(run_.step);
  scheme_->begin({.index = run_.step,
                  .local_samples = static_cast<std::size_t>(mine),
                  .global_samples = static_cast<std::size_t>(batches_.samples(run_.step)),
                  .learning_rate = learning_rate_.at(run_.step),
                  .optimizer_start = run_.momenta_from});
  const LossSums sums = compute(batches_, run_.step);
  // Before the update, so that a loss that is not finite changes no parameter.
  const bool alone = steps_alone();
  exchange_flags(sums, alone);
  finish_step();
  // Which step ends a round and waits for its average, all ranks know alike.
  if (alone) check_->begin_exchange(!traces_.rounds.empty());
  ++run_.step;
  losses_.add(run_.step, sums);
  if (options_.on_step) options_.on_step();
}

LossSums Trainer::compute(BatchIterator& batches, std::int64_t step) {
  LossSums whole;
  // Ranks that go each at a pace of their own count their mini-batches, not samples of a step.
  const std::int64_t others =
      &batches == own_batches_.get() ? grid_.replica() * experiment_.train.global_batch : 0;
  for (std::int64_t micro_batch = 0; micro_batch < batches.micro_batches(); ++micro_batch) {
    const Batch batch = [&] {
      const StepProfile::Part part(options_.profile, "load");
      return batches.load(step, micro_batch);
    }();
    link_->begin_micro_batch(micro_batch, batches.micro_batches());
    const BatchPosition position{.step = step,
                                 .first_sample = others + batches.first_sample(step, micro_batch)};
    const tensor::Loss loss =
        slow_rank_.slowed([&] { return executor_->train(batch, *link_, position); });
    grid_.shared_statistics().count(batch.samples, statistics_);
    if (!std::isfinite(loss.sum)) check_->locate_not_finite(batch, run_.step);
    whole.add(loss, executor_->counted());
  }
  const StepProfile::Part part(options_.profile, "sums");
  link_->end_step();
  if (const std::optional<std::size_t> block = link_->not_finite()) {
    check_->note_not_finite_gradient(layout_.blocks[*block].name, run_.step);
  }
  scheme_->add_loss(whole.loss);
  return whole;
}

// Do replicas make this step without waiting for each other? A scheme of the user's own has another
// description than the one that its configuration names.
bool Trainer::steps_alone() const {
  const sync::SchemeDescription& scheme =
      options_.make_scheme ? scheme_->description() : scheme_of(experiment_.update);
  return scheme.steps_alone() && run_.step >= warm_up_steps_;
}

// Replicas that step alone do not wait for each other's flags.
void Trainer::exchange_flags(const LossSums& sums, bool alone) {
  const bool finite = std::isfinite(sums.loss) && !link_->not_finite();
  if (alone) return check_->note_flags(finite, run_.step);
  check_->exchange_flags(finite, run_.step);
}

// Waits for the reductions that backward has not hidden, and updates the parameters.
void Trainer::finish_step() {
  const StepProfile::Part part(options_.profile, "finish");
  scheme_->finish();
}

bool Trainer::is_paced_now() const noexcept {
  return is_paced(experiment_) && run_.step >= warm_up_steps_;
}

// Samples that all ranks have trained since the warm-up, as far as this rank's parameters tell.
std::int64_t Trainer::paced_samples() const noexcept {
  const std::optional<sync::Pace> pace = scheme_->pace();
  return pace ? pace->samples : 0;
}

// Paced ranks count samples; as steps of the global batch these choose the learning rate and the
// end.
std::int64_t Trainer::step_at(std::int64_t paced_samples) const noexcept {
  const std::int64_t steps = paced_samples / experiment_.train.global_batch;
  return std::min(warm_up_steps_ + steps, total_steps_);
}

// Until the scheme has parked this rank: then an epoch's samples have been trained by all together.
void Trainer::run_paced_steps() {
  if (run_.step >= total_steps_) return;  // resumed at its end
  do {
    run_paced_step();
    report_progress();
  } while (!scheme_->pace()->parked);
  // The samples that ranks have pulled differ; the rank that pushed last has pulled all.
  std::array samples{paced_samples()};
  traffic_.leave_out_of([&] {
    world_.communicator()
        .allreduce(std::span<std::int64_t>(samples), transport::ReduceOp::max)
        .wait();
  });
  run_.step = step_at(samples[0]);
  report_pushes();
}

void Trainer::run_paced_step() {
  const StepProfile::Step profiled(options_.profile, warm_up_steps_ + run_.minibatch + 1);
  const std::int64_t mine = own_batches_->own_samples(run_.minibatch);
  scheme_->begin({.index = warm_up_steps_ + run_.minibatch,
                  .local_samples = static_cast<std::size_t>(mine),
                  .global_samples = static_cast<std::size_t>(experiment_.train.global_batch),
                  .learning_rate = learning_rate_.at(step_at(paced_samples())),
                  .optimizer_start = run_.momenta_from});
  const LossSums sums = compute(*own_batches_, run_.minibatch);
  // There is no step in which all ranks could agree. Nothing of this mini-batch has been pushed.
  if (!check_->not_finite().empty()) end_not_finite_alone(world_, check_->not_finite());
  finish_step();
  ++run_.minibatch;
  run_.step = step_at(paced_samples());
  losses_.add(run_.step + 1, sums);
  if (options_.on_step) options_.on_step();
  if (checkpoints_) checkpoints_->progress();
}

void Trainer::report_pushes() {
  // All ranks of a replica take the same turns.
  if (!grid_.reports_for_replica()) traces_.pushes.clear();
  traffic_.leave_out_of([&] { log_.pushes(gather_pushes(world_, traces_.pushes)); });
  traces_.pushes.clear();
}

// A run that was resumed at its end has evaluated nothing.
void Trainer::finish() {
  if (evaluated_.empty()) evaluated_.copy(*scheme_, grid_, run_.step);
  const sync::SchemeCounters before = scheme_->counters();
  traffic_.start();
  // Changes that a scheme still holds back, such as an open window, go into the parameters.
  scheme_->flush();
  static_cast<void>(work_since(before));
  report_traces();
  if (is_paced(experiment_)) report_pushes();
}

namespace {

/// Some ranks of a grid hold nothing of one kind; then nothing is sent.
void send_some(transport::Communicator& replica, std::span<const float> values) {
  if (!values.empty()) replica.send(values, 0).wait();
}

std::vector<float> receive_some(transport::Communicator& replica, std::size_t size, int rank) {
  std::vector<float> values(size);
  if (size > 0) replica.recv(std::span(values), rank).wait();
  return values;
}

}  // namespace

// Rank 0 collects the parts of the ranks of its replica, one after another. Whether it has a
// folder, it alone knows.
void Trainer::save_model() {
  const bool wanted = world_.rank() == 0 && !options_.run_folder.empty();
  // All ranks ask, because those of rank 0's replica have to send.
  const auto [wants] = sum_over_ranks(world_, std::array{wanted ? 1.0 : 0.0});
  if (wants == 0.0) return;
  const ModelWeights weights = evaluated_weights();
  agree_on_first_rank(world_, [&] {
    save_weights(options_.run_folder / "model.safetensors", model_, *dataset_, weights);
  });
}

// On rank 0; empty on others, which send theirs.
ModelWeights Trainer::evaluated_weights() {
  if (grid_.replica() != 0) return {};
  const auto own = evaluated_.statistics().first(layout_.statistic_count);
  if (world_.rank() != 0) {
    send_some(grid_.own_replica(), evaluated_.parameters());
    send_some(grid_.own_replica(), own);
    return {};
  }
  const ParameterLayout whole = layout_of(model_);
  ModelWeights weights;
  add_part(layout_, evaluated_.parameters(), own, whole, weights);
  const Lowering lowering = lower(model_, grid_.choice().splits, grid_.grid().pr, 1);
  for (int rank = 1; rank < grid_.grid().pr; ++rank) {
    // The part that another rank holds is computed here: no rank tells where its slices belong.
    const ParameterLayout part = layout_of(model_, lowering, rank);
    const auto parameters = receive_some(grid_.own_replica(), part.parameter_count, rank);
    const auto others = receive_some(grid_.own_replica(), part.statistic_count, rank);
    add_part(part, parameters, others, whole, weights);
  }
  return weights;
}

void Trainer::remove_model() const {
  if (world_.rank() != 0 || options_.run_folder.empty()) return;
  std::error_code error;  // one that stays is replaced at the end
  std::filesystem::remove(options_.run_folder / "model.safetensors", error);
}

LossSums Trainer::reduce_losses() {
  check_->settle_flags(run_.step);  // they name the layer, if a loss is not finite
  // Nothing of this step may be under way: what moves later counts for what comes later.
  complete_parameters();
  const LossSums window = losses_.reduce();
  traffic_.leave_out(losses_.bytes());
  return window;
}

namespace {

/// Samples [first, first + size) of the test set, and which of them count, from the first on.
struct TestBatch {
  std::int64_t first = 0;
  Range counted = {};
};

// All batches have the same size, for which there are kernels. Where the share ends within one, the
// batch has samples of neighbours besides, which are not counted.
TestBatch test_batch_from(std::int64_t next, Range share, std::int64_t size, std::int64_t all) {
  // At the end of the test set the batch reaches back instead of beyond.
  const std::int64_t first = std::min(next, all - size);
  const std::int64_t last = std::min(share.last, first + size);
  return {.first = first, .counted = {next - first, last - first}};
}

}  // namespace

Range Trainer::test_share() const {
  return even_range(dataset_->test.shape.n, grid_.grid().pc, grid_.replica());
}

// Some schemes fetch the last of them when the next forward pass asks.
void Trainer::complete_parameters() {
  for (std::size_t block = 0; block < layout_.blocks.size(); ++block) scheme_->make_ready(block);
}

Trainer::Evaluation Trainer::evaluate() {
  const auto began = std::chrono::steady_clock::now();
  complete_parameters();
  // The arrays that must be equal on all replicas; a scheme whose replicas differ by design names
  // none, or fewer.
  check_replicas(world_.communicator(), grid_.grid(), hash_of(scheme_->replicated()), run_.epoch);
  evaluated_.copy(*scheme_, grid_, run_.step);

  LossSums own;
  const auto statistics = evaluated_.statistics().first(layout_.statistic_count);
  const Range share = test_share();
  const std::int64_t size = evaluation_batch();
  for (std::int64_t next = share.first; next < share.last;) {
    const auto [first, counted] = test_batch_from(next, share, size, dataset_->test.shape.n);
    next = first + counted.last;
    Range following;
    if (next < share.last) {
      const std::int64_t begin = test_batch_from(next, share, size, dataset_->test.shape.n).first;
      following = {begin, begin + size};
    }
    const Batch batch = batches_.load_test(first, first + size, following);
    const tensor::Loss loss =
        executor_->evaluate(batch, evaluated_.parameters(), statistics, counted);
    own.add(loss, executor_->counted());
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  const auto [loss, correct, samples, seconds] =
      sum_over_ranks(world_, std::array{own.loss, own.correct, own.samples, took.count()});
  if (!std::isfinite(loss)) {
    throw_on_all("the test loss is NaN or Inf after step " + std::to_string(run_.step) +
                 "; a smaller learning rate or a warm-up may help");
  }
  return {.sums = {loss, correct, samples},
          .seconds = seconds / world_.size(),
          .parameter_hash = to_text(hash_of({evaluated_.parameters()}))};
}

}  // namespace rondo::train

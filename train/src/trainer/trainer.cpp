// The loops of a run over epochs and steps. After its epoch every rank evaluates a part of the test
// set on a copy of the parameters. Under schemes whose ranks do not step together, a rank takes
// mini-batches of its own until the scheme parks all ranks at the end of an epoch.

#include "trainer/trainer.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <rondo/train/plan.hpp>
#include <rondo/train/step_profile.hpp>
#include <rondo/transport/world.hpp>

#include "config/combinations.hpp"
#include "data/prefetch_queue.hpp"
#include "schemes/cyclic.hpp"
#include "schemes/lazy.hpp"
#include "schemes/make_scheme.hpp"
#include "trainer/agreement.hpp"
#include "trainer/meters.hpp"
#include "trainer/prepare.hpp"
#include "trainer/run_log.hpp"
#include "trainer/step_link.hpp"
#include "weights/model_weights.hpp"

namespace rondo::train {
namespace {

// All ranks throw NumericError alike, and so can complete the last checkpoint from before.
void run(Trainer& trainer) {
  trainer.join();
  trainer.announce();
  try {
    while (!trainer.done()) trainer.run_epoch();
  } catch (const NumericError&) {
    trainer.complete_checkpoints();
    throw;
  }
  trainer.complete_checkpoints();
  if (trainer.stopped()) return;
  trainer.finish();
  trainer.save_model();
}

std::string reason_of_end(const Trainer& trainer) {
  if (trainer.stopped()) return "stopped";
  return trainer.cut_short() ? "max_steps" : "completed";
}

/// The error that ended the run is told; one more while telling it is not.
void end_by_error(RunLog& log, const Trainer& trainer, const std::string& error) noexcept {
  try {
    log.end(trainer.summary(error), true);
  } catch (...) {  // NOLINT(bugprone-empty-catch): the first error matters
  }
}

}  // namespace

EpochMetrics train(transport::World& world, const Experiment& experiment,
                   const TrainerOptions& options) {
  std::optional<RunLog> log;
  std::optional<Trainer> trainer;
  agree_on(world, [&] { log.emplace(options, world.rank()); });
  PreparedRun prepared = prepare_run(world, experiment, options.dataset, options.model);
  agree_on(world, [&] { trainer.emplace(world, std::move(prepared), options, *log); });
  try {
    end_together(world, [&] {
      run(*trainer);
      log->end(trainer->summary(reason_of_end(*trainer)), trainer->stopped());
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

namespace {

/// Those of [data], then those of the program.
std::vector<Augmentation> augmentations_of(const Dataset& dataset, const Experiment::Data& data,
                                           const std::vector<Augmentation>& own) {
  std::vector<Augmentation> all;
  for (const std::string& text : data.augment) all.push_back(make_augmentation(text, dataset.mean));
  all.insert(all.end(), own.begin(), own.end());
  return all;
}

// Each rank has broken images of its own, and only rank 0 has a log.
void tell_of_broken_image(const std::string& problem) {
  std::fprintf(stderr, "rondo: %s; skipped\n", problem.c_str());
}

BatchIteratorOptions stream_options(const Dataset& dataset, const Experiment& experiment,
                                    const GridMembership& grid, const TrainerOptions& options) {
  return {
      .loader = {.global_batch = experiment.train.global_batch,
                 .seed = static_cast<std::uint64_t>(experiment.train.seed),
                 .augmentations = augmentations_of(dataset, experiment.data, options.augmentations),
                 .centre_crop = experiment.data.centre_crop,
                 .decoders = static_cast<int>(experiment.data.decoders),
                 .decoder_cpus = read_cpu_list(experiment.data.decoder_cpus),
                 .broken =
                     experiment.data.broken == "skip" ? BrokenImages::skip : BrokenImages::refuse,
                 .on_broken = tell_of_broken_image},
      .rank = grid.group(),
      .ranks = grid.grid().pc,
      .micro_batches = experiment.train.accumulate,
      .whole_batches = experiment.data.drop_last || needs_whole_batches(experiment) ||
                       options.make_scheme != nullptr};
}

/// Of a rank that draws mini-batches of its own, each as large as its share of a global batch.
BatchIteratorOptions own_stream_options(const Dataset& dataset, const Experiment& experiment,
                                        const GridMembership& grid, const TrainerOptions& trainer) {
  BatchIteratorOptions options = stream_options(dataset, experiment, grid, trainer);
  options.loader.seed = worker_seed(options.loader.seed, options.rank);
  options.loader.global_batch =
      even_range(options.loader.global_batch, options.ranks, options.rank).size();
  options.rank = 0;
  options.ranks = 1;
  return options;
}

std::unique_ptr<BatchIterator> make_own_stream(const Dataset& dataset, const Experiment& experiment,
                                               const GridMembership& grid,
                                               const TrainerOptions& options) {
  if (!is_paced(experiment)) return nullptr;
  return std::make_unique<BatchIterator>(dataset,
                                         own_stream_options(dataset, experiment, grid, options));
}

std::pmr::vector<float> array(AccountedMemory& memory, const char* name, std::size_t elements) {
  const MemoryScope scope(&memory, name);
  return std::pmr::vector<float>(elements, 0.0F, &memory);
}

/// Books what others take from ordinary memory, for the whole run.
void book(AccountedMemory& memory, const char* name, std::size_t bytes) {
  const MemoryScope scope(&memory, name);
  memory.account().take(bytes);
}

std::size_t batch_bytes(const tensor::Shape& image, std::int64_t samples) {
  return static_cast<std::size_t>(samples) *
         (static_cast<std::size_t>(image.image()) * sizeof(float) + sizeof(std::int32_t));
}

}  // namespace

Trainer::Trainer(transport::World& world, PreparedRun run, const TrainerOptions& options,
                 RunLog& log)
    : world_(world),
      log_(log),
      on_step_(options.on_step),
      request_(options.request),
      resume_(options.resume),
      run_folder_(options.run_folder),
      team_(options.team),
      profile_(options.profile),
      experiment_(std::move(run.experiment)),
      threads_(options.threads),
      dataset_(std::move(run.dataset)),
      model_(std::move(run.model)),
      grid_(world, model_, experiment_),
      layout_(grid_.layout()),
      account_(static_cast<std::size_t>(experiment_.train.memory_limit)),
      memory_(account_),
      arena_(account_, &world.arena()),
      parameters_(array(arena_, "the array of parameters", layout_.parameter_count)),
      gradients_(array(arena_, "the array of gradients", layout_.parameter_count)),
      statistics_(array(memory_, "the array of statistics",
                        layout_.statistic_count + grid_.shared_statistics().size())),
      evaluated_parameters_(
          array(memory_, "the copy of parameters for evaluation", layout_.parameter_count)),
      evaluated_statistics_(
          array(memory_, "the copy of statistics for evaluation", statistics_.size())),
      batches_(*dataset_, stream_options(*dataset_, experiment_, grid_, options)),
      own_batches_(make_own_stream(*dataset_, experiment_, grid_, options)),
      engine_(options.threads, grid_.is_whole() ? &memory_ : &arena_),
      total_steps_(total_steps()),
      warm_up_steps_(warm_up_steps_of(experiment_, batches_.steps())),
      learning_rate_(learning_rate_of(experiment_, batches_.steps(), steps_of_schedule())),
      make_own_scheme_(options.make_scheme),
      slow_rank_(world, slowness_of(experiment_, world.rank())),
      losses_(world),
      traffic_(world),
      injections_(injections_of(experiment_, world.nodes())) {
  if (grid_.is_whole()) make_executor();
  book_others();
  initialize(layout_, static_cast<std::uint64_t>(experiment_.train.seed), parameters_,
             model_state().statistics);
  if (!experiment_.model.weights.empty()) {
    load_weights(experiment_.model.weights, layout_, parameters_, model_state().statistics,
                 experiment_.model.skip);
  }
  grid_.shared_statistics().start(statistics_);
  if (scheme_of(experiment_.update).windows) {
    lazy_ = plan_lazy_layers(model_, layout_, lazy_layers_of(experiment_));
  }
  if (scheme_of(experiment_.update).levels) {
    rank_groups_ = rank_groups(experiment_, grid_.leaders());
  }
  if (is_paced(experiment_) && !experiment_.update.replay.empty()) {
    script_ = read_token_trace(experiment_.update.replay, grid_.grid().pc);
  }
}

// What the optimizer keeps for every parameter, the sum of gradients over micro-batches, and
// batches: each stream has one that is computed and some that are prepared, and so has evaluation.
void Trainer::book_others() {
  const std::size_t gradients = layout_.parameter_count * sizeof(float);
  const auto arrays = static_cast<std::size_t>(optimizer_words(experiment_.optimizer));
  book(memory_, "the optimizer's state", arrays * gradients);
  if (experiment_.checkpoint.wanted()) {
    book(memory_, "the copy for a checkpoint",
         (1 + arrays) * gradients + statistics_.size() * sizeof(float));
  }
  if (batches_.micro_batches() > 1)
    book(memory_, "the sum of gradients over micro-batches", gradients);
  std::int64_t samples = batches_.buffered_samples(evaluation_batch());
  if (own_batches_) samples += own_batches_->buffered_samples(0);
  book(memory_, "the buffers for batches", batch_bytes(model_.input, samples));
}

std::int64_t Trainer::total_steps() const {
  const std::int64_t all = experiment_.train.epochs * batches_.steps();
  const std::int64_t most = experiment_.train.max_steps;
  return most > 0 ? std::min(most, all) : all;
}

// train.max_steps ends a run, and changes no learning rate before its end. A sweep of rates goes
// through all of them in the steps that it has.
std::int64_t Trainer::steps_of_schedule() const {
  const bool sweeps = experiment_.optimizer.schedule == "exponential";
  return sweeps ? total_steps_ : experiment_.train.epochs * batches_.steps();
}

// As many as training computes at once: so evaluation runs the same kernels, in the same memory. A
// smaller test set has kernels of its own.
std::int64_t Trainer::evaluation_batch() const {
  const std::int64_t trained = batches_.largest_micro_batch();
  const std::int64_t all = dataset_->test.shape.n;
  return all > 0 ? std::min(all, trained) : trained;
}

ExecutorOptions Trainer::executor_options() const {
  ExecutorOptions options;
  options.training_batches = batches_.micro_batch_sizes();
  if (own_batches_) {
    for (const std::int64_t size : own_batches_->micro_batch_sizes()) {
      options.training_batches.push_back(size);
    }
  }
  if (batches_.has_empty_micro_batches() ||
      (own_batches_ && own_batches_->has_empty_micro_batches())) {
    options.training_batches.push_back(0);
  }
  options.evaluation_batch = evaluation_batch();
  options.seed = static_cast<std::uint64_t>(experiment_.train.seed);
  options.label_smoothing = static_cast<float>(experiment_.train.label_smoothing);
  options.precision = precision_of(experiment_);
  return options;
}

ModelState Trainer::model_state() {
  return {parameters_, gradients_, std::span(statistics_).first(layout_.statistic_count)};
}

void Trainer::make_executor() {
  const ModelState state = model_state();
  if (grid_.is_whole()) {
    executor_.emplace(engine_, model_, state, executor_options());
  } else {
    executor_.emplace(engine_, model_, grid_.part(&arena_), state, executor_options());
  }
}

sync::Replica Trainer::replica() {
  sync::Replica result{.world = &world_,
                       .parameters = parameters_,
                       .gradients = gradients_,
                       .statistics = statistics_,
                       .layers = {},
                       .statistics_over = &grid_.replicas(),
                       .slices = grid_.slices()};
  for (std::size_t i = 0; i < layout_.blocks.size(); ++i) {
    const ParameterBlock& group = layout_.blocks[i];
    result.layers.push_back({group.name, group.offset, group.size, grid_.groups_of(i)});
  }
  return result;
}

void Trainer::make_groups() {
  for (const RankGroups& level : rank_groups_) {
    const int group = level.group_of[static_cast<std::size_t>(grid_.group())];
    groups_.push_back(grid_.replicas().split(group));
  }
}

void Trainer::choose_lazy_layers() {
  if (!scheme_of(experiment_.update).windows) return;
  LazyLayers choice = lazy_layers_of(experiment_);
  if (choice.kind != LazyLayers::Kind::automatic) return;  // the constructor has chosen
  if (resumes_exactly_) {  // what was measured then; now it might be others
    choice = {LazyLayers::Kind::count, static_cast<double>(resumed_.lazy_convolutions)};
    lazy_ = plan_lazy_layers(model_, layout_, choice);
    return;
  }
  const std::size_t unhidden = measure_unhidden_layers(world_, *executor_, batches_.load(0, 0),
                                                       replica().layers, model_state());
  lazy_ = plan_lazy_layers(model_, layout_, choice, unhidden);
}

void Trainer::join() {
  grid_.join();
  if (!executor_) make_executor();
  batches_.read_for(*executor_, evaluation_batch());
  if (own_batches_) own_batches_->read_for(*executor_, evaluation_batch());
  make_groups();
  find_checkpoint();
  choose_lazy_layers();
  SchemeParts parts{.replica = replica(),
                    .team = team_,
                    .norms_and_biases = norms_and_biases(layout_),
                    .warm_up_steps = warm_up_left(),
                    .lazy = lazy_,
                    .epoch_samples = batches_.epoch_samples(),
                    .script = std::move(script_),
                    .traces = &traces_};
  for (std::size_t level = 0; level < groups_.size(); ++level) {
    parts.levels.push_back({rank_groups_[level].period, &groups_[level]});
  }
  const std::int64_t paced_steps = std::max<std::int64_t>(total_steps_ - warm_up_steps_, 1);
  parts.total_samples = paced_steps * experiment_.train.global_batch;
  scheme_ = make_own_scheme_ ? make_own_scheme(experiment_, parts, make_own_scheme_)
                             : make_scheme(experiment_, std::move(parts));
  link_.emplace(*scheme_, world_, layout_, gradients_, grid_,
                static_cast<std::size_t>(experiment_.update.bucket_bytes));
  link_->set_profile(profile_);
  if (batches_.micro_batches() > 1) link_->expect_micro_batches(team_);
  flags_.emplace(world_);
  begin_checkpoints();
  restore();
}

const EpochMetrics& Trainer::run_epoch() {
  if (epoch_open_) {  // goes on within it
    traffic_.start(epoch_traffic_);
  } else {
    ++epoch_;
    epoch_first_ = step_;
    epoch_before_ = scheme_->counters();
    epoch_open_ = true;
    losses_.start();
    traffic_.start();
  }
  if (is_paced_now()) {
    run_paced_steps();
  } else {
    run_steps();
  }
  if (stopped_) return last_epoch_;
  report_epoch();
  epoch_open_ = false;
  end_epoch();
  return last_epoch_;
}

void Trainer::run_steps() {
  bool more = step_ < total_steps_;
  while (more) {
    run_step();
    report_traces();
    const std::int64_t in_epoch = step_ - epoch_first_;
    if (experiment_.train.log_every > 0 && in_epoch % experiment_.train.log_every == 0) {
      report_step();
    }
    report_progress();
    end_step();
    more = step_ < total_steps_ && step_ % batches_.steps() != 0 && !stopped_;
  }
}

void Trainer::run_step() {
  const StepProfile::Step profiled(profile_, step_ + 1);
  const std::int64_t mine = batches_.own_samples(step_);
  scheme_->begin({.index = step_,
                  .local_samples = static_cast<std::size_t>(mine),
                  .global_samples = static_cast<std::size_t>(batches_.samples(step_)),
                  .learning_rate = learning_rate_.at(step_)});
  const tensor::Loss loss = compute(batches_, step_);
  meet_in_step(loss);
  finish_step();
  ++step_;
  losses_.add(step_, loss, grid_.speaks() ? mine : 0);
  if (on_step_) on_step_();
}

tensor::Loss Trainer::compute(BatchIterator& batches, std::int64_t step) {
  tensor::Loss whole;
  // Ranks that go each at a pace of their own count their mini-batches, not samples of a step.
  const std::int64_t others =
      &batches == own_batches_.get() ? grid_.group() * experiment_.train.global_batch : 0;
  for (std::int64_t micro_batch = 0; micro_batch < batches.micro_batches(); ++micro_batch) {
    const Batch batch = [&] {
      const StepProfile::Part part(profile_, "load");
      return batches.load(step, micro_batch);
    }();
    link_->begin_micro_batch(micro_batch, batches.micro_batches());
    const BatchPosition position{.step = step,
                                 .first_sample = others + batches.first_sample(step, micro_batch)};
    const tensor::Loss loss =
        slow_rank_.slowed([&] { return executor_->train(batch, *link_, position); });
    grid_.shared_statistics().count(batch.samples, statistics_);
    if (!std::isfinite(loss.sum) && not_finite_.empty()) explain(step, batch);
    whole.sum += loss.sum;
    whole.correct += loss.correct;
  }
  const StepProfile::Part part(profile_, "sums");
  link_->end_step();
  return whole;
}

void Trainer::finish_step() {
  const StepProfile::Part part(profile_, "finish");
  scheme_->finish();
}

// A run that was resumed at its end has evaluated nothing.
void Trainer::finish() {
  if (evaluated_step_ < 0) copy_for_evaluation();
  const sync::SchemeCounters before = scheme_->counters();
  traffic_.start();
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
  const bool wanted = world_.rank() == 0 && !run_folder_.empty();
  const auto [wants] = sum_over_ranks(world_, std::array{wanted ? 1.0 : 0.0});
  if (wants == 0.0 || grid_.group() != 0) return;
  const auto statistics = std::span<const float>(evaluated_statistics_);
  const auto own = statistics.first(layout_.statistic_count);
  if (world_.rank() != 0) {
    send_some(grid_.own_group(), evaluated_parameters_);
    send_some(grid_.own_group(), own);
    return;
  }
  const ParameterLayout whole = layout_of(model_);
  ModelWeights weights;
  add_part(layout_, evaluated_parameters_, own, whole, weights);
  for (int rank = 1; rank < grid_.grid().pr; ++rank) {
    const ParameterLayout part = layout_of(model_, grid_.choice().splits, grid_.grid().pr, rank);
    const auto parameters = receive_some(grid_.own_group(), part.parameter_count, rank);
    const auto others = receive_some(grid_.own_group(), part.statistic_count, rank);
    add_part(part, parameters, others, whole, weights);
  }
  save_weights(run_folder_ / "model.safetensors", model_, *dataset_, weights);
}

LossSums Trainer::reduce_losses() {
  hear_late_flags();  // they name the layer, if a loss is not finite
  traffic_.begin_bookkeeping();
  const LossSums window = losses_.reduce();
  traffic_.end_bookkeeping();
  return window;
}

namespace {

/// Samples [first, first + size) of the test set, and which of them count, from the first on.
struct TestBatch {
  std::int64_t first = 0;
  Range judged = {};
};

// All batches have the same size, for which there are kernels. Where the share ends within one, the
// batch has samples of neighbours besides, which are not counted.
TestBatch test_batch_from(std::int64_t next, Range share, std::int64_t size, std::int64_t all) {
  const std::int64_t first = std::min(next, all - size);
  const std::int64_t last = std::min(share.last, first + size);
  return {.first = first, .judged = {next - first, last - first}};
}

}  // namespace

Range Trainer::test_share() const {
  return even_range(dataset_->test.shape.n, grid_.grid().pc, grid_.group());
}

void Trainer::copy_for_evaluation() {
  scheme_->copy_for_evaluation(evaluated_parameters_, evaluated_statistics_);
  grid_.average_statistics(evaluated_statistics_);
  evaluated_step_ = step_;
}

Trainer::Evaluation Trainer::evaluate() {
  const auto began = std::chrono::steady_clock::now();
  check_replicas(world_.communicator(), grid_.grid(), hash_of(scheme_->replicated()), epoch_);
  copy_for_evaluation();

  LossSums own;
  const auto statistics = std::span(evaluated_statistics_).first(layout_.statistic_count);
  const Range share = test_share();
  const std::int64_t size = evaluation_batch();
  for (std::int64_t next = share.first; next < share.last;) {
    const auto [first, judged] = test_batch_from(next, share, size, dataset_->test.shape.n);
    const Batch batch = batches_.load_test(first, first + size);
    own.add(executor_->evaluate(batch, evaluated_parameters_, statistics, judged),
            grid_.speaks() ? judged.size() : 0);
    next = first + judged.last;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  const auto [loss, correct, samples, seconds] =
      sum_over_ranks(world_, std::array{own.loss, own.correct, own.samples, took.count()});
  if (!std::isfinite(loss)) {
    throw NumericError("the test loss is NaN or Inf after step " + std::to_string(step_) +
                       "; a smaller learning rate or a warm-up may help");
  }
  return {.sums = {loss, correct, samples},
          .seconds = seconds / world_.size(),
          .parameter_hash = to_text(hash_of({evaluated_parameters_}))};
}

bool Trainer::is_paced_now() const noexcept {
  return is_paced(experiment_) && step_ >= warm_up_steps_;
}

// Samples that all ranks have trained since the warm-up, as far as this rank's parameters tell.
std::int64_t Trainer::paced_samples() const noexcept {
  const std::optional<sync::Pace> pace = scheme_->pace();
  return pace ? pace->samples : 0;
}

std::int64_t Trainer::step_at(std::int64_t paced_samples) const noexcept {
  const std::int64_t steps = paced_samples / experiment_.train.global_batch;
  return std::min(warm_up_steps_ + steps, total_steps_);
}

void Trainer::run_paced_steps() {
  do {
    run_paced_step();
    report_progress();
  } while (!scheme_->pace()->parked);
  // What a rank has pulled differs; the rank that pushed last has pulled all.
  std::array samples{paced_samples()};
  traffic_.begin_bookkeeping();
  world_.communicator()
      .allreduce(std::span<std::int64_t>(samples), transport::ReduceOp::max)
      .wait();
  traffic_.end_bookkeeping();
  step_ = step_at(samples[0]);
  report_pushes();
}

void Trainer::run_paced_step() {
  const StepProfile::Step profiled(profile_, warm_up_steps_ + minibatch_ + 1);
  const std::int64_t mine = own_batches_->own_samples(minibatch_);
  scheme_->begin({.index = warm_up_steps_ + minibatch_,
                  .local_samples = static_cast<std::size_t>(mine),
                  .global_samples = static_cast<std::size_t>(experiment_.train.global_batch),
                  .learning_rate = learning_rate_.at(step_at(paced_samples()))});
  const tensor::Loss loss = compute(*own_batches_, minibatch_);
  finish_step();
  ++minibatch_;
  step_ = step_at(paced_samples());
  losses_.add(step_ + 1, loss, grid_.speaks() ? mine : 0);
  if (on_step_) on_step_();
  if (checkpoints_) checkpoints_->progress();
}

void Trainer::report_pushes() {
  if (!grid_.speaks()) traces_.pushes.clear();
  traffic_.begin_bookkeeping();
  log_.pushes(gather_pushes(world_, traces_.pushes));
  traffic_.end_bookkeeping();
  traces_.pushes.clear();
}

}  // namespace rondo::train

#include "trainer/trainer.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <rondo/train/optimizer_words.hpp>
#include <rondo/transport/world.hpp>

#include "config/combinations.hpp"
#include "trainer/injections.hpp"
#include "trainer/token_trace.hpp"
#include "trainer/unhidden_layers.hpp"
#include "trainer/update.hpp"

namespace rondo::train {
namespace {

BatchStreamOptions stream_options(const Experiment& experiment, const GridPlace& grid) {
  return {.loader = {.global_batch = experiment.train.global_batch,
                     .seed = static_cast<std::uint64_t>(experiment.train.seed),
                     .crop_padding = experiment.data.crop,
                     .flip = experiment.data.flip},
          .rank = grid.group(),
          .ranks = grid.grid().pc,
          .pieces = experiment.train.accumulate,
          .whole_batches = experiment.data.drop_last || needs_whole_batches(experiment)};
}

/// Of a rank that draws mini-batches of its own, each as large as its share of a global batch.
BatchStreamOptions own_stream_options(const Experiment& experiment, const GridPlace& grid) {
  BatchStreamOptions options = stream_options(experiment, grid);
  options.loader.seed = worker_seed(options.loader.seed, options.rank);
  options.loader.global_batch =
      even_range(options.loader.global_batch, options.ranks, options.rank).size();
  options.rank = 0;
  options.ranks = 1;
  return options;
}

std::unique_ptr<BatchStream> make_own_stream(const Dataset& dataset, const Experiment& experiment,
                                             const GridPlace& grid) {
  if (!is_paced(experiment)) return nullptr;
  return std::make_unique<BatchStream>(dataset, own_stream_options(experiment, grid));
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
      team_(options.team),
      experiment_(std::move(run.experiment)),
      threads_(options.threads),
      material_(std::move(run.material)),
      grid_(world, material_.model, experiment_),
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
      batches_(material_.dataset, stream_options(experiment_, grid_)),
      own_batches_(make_own_stream(material_.dataset, experiment_, grid_)),
      engine_(options.threads, grid_.is_whole() ? &memory_ : &arena_),
      total_steps_(total_steps()),
      warm_up_steps_(warm_up_steps_of(experiment_, batches_.steps())),
      learning_rate_(learning_rate_of(experiment_, batches_.steps(), total_steps_)),
      slow_rank_(world, slowness_of(experiment_, world.rank())),
      losses_(world),
      traffic_(world),
      injections_(injections_of(experiment_, world.nodes())) {
  if (grid_.is_whole()) make_executor();
  book_others();
  initialize(layout_, static_cast<std::uint64_t>(experiment_.train.seed), parameters_,
             model_state().statistics);
  grid_.shared_statistics().start(statistics_);
  if (scheme_of(experiment_.update).windows) {
    lazy_ = plan_lazy_layers(material_.model, layout_, lazy_layers_of(experiment_));
  }
  if (scheme_of(experiment_.update).levels) {
    rank_groups_ = rank_groups(experiment_, grid_.leaders());
  }
  if (is_paced(experiment_) && !experiment_.update.replay.empty()) {
    script_ = read_token_trace(experiment_.update.replay, grid_.grid().pc);
  }
}

// What the optimizer keeps for every parameter, the sum of gradients over pieces, and batches: each
// stream has one that is computed and one that is prepared, and evaluation has one of its own.
void Trainer::book_others() {
  const std::size_t gradients = layout_.parameter_count * sizeof(float);
  const auto arrays = static_cast<std::size_t>(optimizer_words(experiment_.optimizer));
  book(memory_, "the optimizer's state", arrays * gradients);
  if (batches_.pieces() > 1) book(memory_, "the sum of gradients over pieces", gradients);
  std::int64_t samples = 2 * batches_.largest_piece() + evaluation_batch();
  if (own_batches_) samples += 2 * own_batches_->largest_piece();
  book(memory_, "the buffers for batches", batch_bytes(material_.model.input, samples));
}

std::int64_t Trainer::total_steps() const {
  const std::int64_t all = experiment_.train.epochs * batches_.steps();
  const std::int64_t most = experiment_.train.max_steps;
  return most > 0 ? std::min(most, all) : all;
}

// As many as training computes at once: so evaluation runs the same kernels, in the same memory. A
// smaller test set has kernels of its own.
std::int64_t Trainer::evaluation_batch() const {
  const std::int64_t trained = batches_.largest_piece();
  const std::int64_t all = material_.dataset.test.shape.n;
  return all > 0 ? std::min(all, trained) : trained;
}

ExecutorOptions Trainer::executor_options() const {
  ExecutorOptions options;
  options.training_batches = batches_.piece_sizes();
  if (own_batches_) {
    for (const std::int64_t size : own_batches_->piece_sizes()) {
      options.training_batches.push_back(size);
    }
  }
  if (batches_.has_empty_pieces() || (own_batches_ && own_batches_->has_empty_pieces())) {
    options.training_batches.push_back(0);
  }
  options.evaluation_batch = evaluation_batch();
  options.label_smoothing = static_cast<float>(experiment_.train.label_smoothing);
  return options;
}

ModelState Trainer::model_state() {
  return {parameters_, gradients_, std::span(statistics_).first(layout_.statistic_count)};
}

void Trainer::make_executor() {
  const ModelState state = model_state();
  if (grid_.is_whole()) {
    executor_.emplace(engine_, material_.model, state, executor_options());
  } else {
    executor_.emplace(engine_, material_.model, grid_.part(&arena_), state, executor_options());
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
  for (std::size_t i = 0; i < layout_.groups.size(); ++i) {
    const ParameterGroup& group = layout_.groups[i];
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
  const LazyLayers choice = lazy_layers_of(experiment_);
  if (choice.kind != LazyLayers::Kind::automatic) return;  // the constructor has chosen
  const std::size_t unhidden = measure_unhidden_layers(world_, *executor_, batches_.load(0, 0),
                                                       replica().layers, model_state());
  lazy_ = plan_lazy_layers(material_.model, layout_, choice, unhidden);
}

void Trainer::join() {
  grid_.join();
  if (!executor_) make_executor();
  make_groups();
  choose_lazy_layers();
  SchemeParts parts{.replica = replica(),
                    .team = team_,
                    .norms_and_biases = norms_and_biases(layout_),
                    .warm_up_steps = warm_up_steps_,
                    .lazy = lazy_,
                    .epoch_samples = batches_.epoch_samples(),
                    .script = std::move(script_),
                    .traces = &traces_};
  for (std::size_t level = 0; level < groups_.size(); ++level) {
    parts.levels.push_back({rank_groups_[level].period, &groups_[level]});
  }
  const std::int64_t paced_steps = std::max<std::int64_t>(total_steps_ - warm_up_steps_, 1);
  parts.total_samples = paced_steps * experiment_.train.global_batch;
  scheme_ = make_scheme(experiment_, std::move(parts));
  link_.emplace(*scheme_, world_, layout_, gradients_, grid_,
                static_cast<std::size_t>(experiment_.update.bucket_bytes));
  if (batches_.pieces() > 1) link_->expect_pieces(team_);
}

EpochMetrics Trainer::run_epoch() {
  const sync::SchemeCounters before = scheme_->counters();
  ++epoch_;
  epoch_first_ = step_;
  losses_.start();
  traffic_.start();
  if (is_paced_now()) {
    run_paced_steps();
  } else {
    run_steps();
  }
  return epoch_metrics(before);
}

void Trainer::run_steps() {
  do {
    run_step();
    report_traces();
    const std::int64_t in_epoch = step_ - epoch_first_;
    if (experiment_.train.log_every > 0 && in_epoch % experiment_.train.log_every == 0) {
      report_step();
    }
    report_progress();
  } while (!done() && step_ % batches_.steps() != 0);
}

void Trainer::run_step() {
  const std::int64_t mine = batches_.own_samples(step_);
  scheme_->begin({.index = step_,
                  .local_samples = static_cast<std::size_t>(mine),
                  .global_samples = static_cast<std::size_t>(batches_.samples(step_)),
                  .learning_rate = learning_rate_.at(step_)});
  const tensor::Loss loss = compute(batches_, step_);
  scheme_->finish();
  ++step_;
  losses_.add(step_, loss, grid_.speaks() ? mine : 0);
  if (on_step_) on_step_();
}

tensor::Loss Trainer::compute(BatchStream& batches, std::int64_t step) {
  tensor::Loss whole;
  for (std::int64_t piece = 0; piece < batches.pieces(); ++piece) {
    const Batch batch = batches.load(step, piece);
    link_->begin_piece(piece, batches.pieces());
    const tensor::Loss loss = slow_rank_.slowed([&] { return executor_->train(batch, *link_); });
    grid_.shared_statistics().count(batch.samples, statistics_);
    whole.sum += loss.sum;
    whole.correct += loss.correct;
  }
  link_->end_step();
  return whole;
}

void Trainer::finish() {
  const sync::SchemeCounters before = scheme_->counters();
  traffic_.start();
  scheme_->flush();
  static_cast<void>(work_since(before));
  report_traces();
  if (is_paced(experiment_)) report_pushes();
}

LossSums Trainer::reduce_losses() {
  traffic_.begin_bookkeeping();
  const LossSums window = losses_.reduce();
  traffic_.end_bookkeeping();
  return window;
}

}  // namespace rondo::train

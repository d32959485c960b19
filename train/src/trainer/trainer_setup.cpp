// Everything that a rank owns during a run, and how it is made.
//
// The constructor communicates nothing: it makes the arrays, the batch iterators and, where a rank
// runs the whole model, the executor. join() makes with the other ranks what they share: the
// executor of a model that is split over ranks, the averaging groups and the scheme. It also finds
// the checkpoint to go on from. The memory that others allocate for the run is counted too, so that
// train.memory_limit refuses a run before its first step.
//
// Members are made in the order of their declaration, which is an order of needs: the grid before
// the arrays, whose sizes it says; the account before all that it counts; batches before the
// executor, which has a plan for each of their sizes.

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include <rondo/tensor/batch_norm.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/train/layer_type.hpp>
#include <rondo/train/plan.hpp>
#include <rondo/train/weights.hpp>
#include <rondo/transport/world.hpp>

#include "config/combinations.hpp"
#include "data/augmentations.hpp"
#include "executor/lowering.hpp"
#include "schemes/cyclic.hpp"
#include "schemes/lazy.hpp"
#include "schemes/make_scheme.hpp"
#include "trainer/agreement.hpp"
#include "trainer/prepare.hpp"
#include "trainer/step_link.hpp"
#include "trainer/trainer.hpp"
#include "weights/model_weights.hpp"

namespace rondo::train {
namespace {

// Micro-batches beyond these would be empty.
void expect_samples_for(std::int64_t micro_batches, std::int64_t samples, std::int64_t replicas) {
  const std::int64_t most = (samples + replicas - 1) / replicas;
  if (micro_batches <= most) return;
  throw ConfigError(
      fmt::format("train.accumulate: {} micro-batches are more than the {} samples that a replica "
                  "has of a step; give fewer",
                  micro_batches, most));
}

// The values of a channel that the layer's batch norm sees at once, the fewest of all ranks; 0
// where it is no batch norm. `samples` are those of what shares its statistics.
std::int64_t values_of_channel(const Model& model, const GridChoice& grid, std::size_t layer,
                               std::int64_t samples) {
  const LayerSpec& spec = model.layers[layer];
  const tensor::Shape input = shapes_of(model, samples)[spec.inputs[0]];
  if (!std::holds_alternative<tensor::BatchNormSpec>(spec.kind->spec(input))) return 0;
  std::int64_t fewest = input.n * input.h * input.w;
  if (grid.grid.pr == 1 || grid.batch_norm != BatchNormScope::rank) return fewest;
  const Lowering lowering = lower(model, grid.splits, grid.grid.pr, samples);
  for (const GraphNode& node : lowering.graph.nodes) {
    if (node.layer != layer) continue;
    for (int rank = 0; rank < grid.grid.pr; ++rank) {
      const tensor::Shape own = lowering.values[node.inputs[0]].box_of(rank).shape();
      if (own.size() > 0) fewest = std::min(fewest, own.n * own.h * own.w);
    }
  }
  return fewest;
}

// The output of a batch norm that sees one value of a channel is its bias, whatever the image is,
// and all gradients before it are 0.
void expect_batch_norms_train(const Model& model, const GridChoice& grid, std::int64_t batch,
                              std::int64_t micro_batches) {
  const bool by_all = grid.batch_norm == BatchNormScope::all;
  const std::int64_t parts = micro_batches * (by_all ? 1 : grid.grid.pc);
  const std::int64_t samples = std::max<std::int64_t>(batch / parts, 1);
  for (std::size_t layer = 0; layer < model.layers.size(); ++layer) {
    if (!model.layers[layer].kind->traits().batch_statistics) continue;
    if (values_of_channel(model, grid, layer, samples) != 1) continue;
    const bool by_rank = grid.batch_norm == BatchNormScope::rank && grid.grid.pr > 1;
    const std::string more = by_all ? "" : ", fewer ranks or grid.batch_norm = \"all\"";
    throw ConfigError(fmt::format(
        "train.global_batch: the batch norm {} would train nothing, because it sees one value of "
        "each channel at once, of {} of a {}; give a larger batch{}{}",
        model.layers[layer].name, samples == 1 ? "1 sample" : fmt::format("{} samples", samples),
        by_all             ? "step"
        : grid.grid.pr > 1 ? "replica"
                           : "rank",
        more, by_rank ? " (or \"replica\")" : ""));
  }
}

BatchIteratorOptions iterator_options(const Dataset& dataset, const Experiment& experiment,
                                      const GridMembership& grid, const TrainerOptions& options) {
  expect_samples_for(experiment.train.accumulate,
                     std::min(experiment.train.global_batch, dataset.training.shape.n),
                     grid.grid().pc);
  LoaderOptions loader = loader_options(experiment, dataset);
  loader.on_broken = options.on_broken;
  // The augmentations of [data], then those of the program.
  const std::vector<Augmentation>& own = options.augmentations;
  loader.augmentations.insert(loader.augmentations.end(), own.begin(), own.end());
  return {.loader = std::move(loader),
          .rank = grid.replica(),
          .ranks = grid.grid().pc,
          .micro_batches = experiment.train.accumulate,
          // It is not known here whether the replicas of a program's own scheme step by themselves.
          .whole_batches = experiment.data.drop_last || needs_whole_batches(experiment) ||
                           options.make_scheme != nullptr};
}

/// Options of a rank that draws its own mini-batches, each as large as its share of a global batch.
BatchIteratorOptions own_iterator_options(const Dataset& dataset, const Experiment& experiment,
                                          const GridMembership& grid,
                                          const TrainerOptions& trainer) {
  BatchIteratorOptions options = iterator_options(dataset, experiment, grid, trainer);
  // A seed of its own: each rank goes through the training set in another order.
  options.loader.seed = worker_seed(options.loader.seed, options.rank);
  options.loader.global_batch =
      even_range(options.loader.global_batch, options.ranks, options.rank).size();
  options.rank = 0;
  options.ranks = 1;
  return options;
}

std::unique_ptr<BatchIterator> make_own_batches(const Dataset& dataset,
                                                const Experiment& experiment,
                                                const GridMembership& grid,
                                                const TrainerOptions& options) {
  if (!is_paced(experiment)) return nullptr;
  return std::make_unique<BatchIterator>(dataset,
                                         own_iterator_options(dataset, experiment, grid, options));
}

std::pmr::vector<float> array(AccountedMemory& memory, const char* name, std::size_t elements) {
  const MemoryScope scope(&memory, name);
  return std::pmr::vector<float>(elements, 0.0F, &memory);
}

/// Counts what others allocate in ordinary memory, for the whole run.
void count_allocation(AccountedMemory& memory, const char* name, std::size_t bytes) {
  const MemoryScope scope(&memory, name);
  memory.account().add(bytes);
}

std::size_t batch_bytes(const tensor::Shape& image, std::int64_t samples) {
  return static_cast<std::size_t>(samples) *
         (static_cast<std::size_t>(image.image()) * sizeof(float) + sizeof(std::int32_t));
}

}  // namespace

Trainer::Trainer(transport::World& world, PreparedRun run, TrainerOptions options, RunLog& log)
    : world_(world),
      log_(log),
      options_(std::move(options)),
      experiment_(std::move(run.experiment)),
      threads_(std::max(options_.threads, 1)),
      dataset_(std::move(run.dataset)),
      digests_(std::move(run.digests)),
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
      evaluated_(memory_, layout_.parameter_count, statistics_.size()),
      batches_(*dataset_, iterator_options(*dataset_, experiment_, grid_, options_)),
      own_batches_(make_own_batches(*dataset_, experiment_, grid_, options_)),
      // On a grid activations travel between ranks, so they lie in shared memory.
      engine_(threads_, grid_.is_whole() ? &memory_ : &arena_),
      total_steps_(total_steps()),
      warm_up_steps_(warm_up_steps_of(experiment_, batches_.steps())),
      learning_rate_(learning_rate_of(experiment_, batches_.steps(), steps_of_schedule())),
      slow_rank_(world, slowness_of(experiment_, world.rank())),
      losses_(world),
      traffic_(world),
      synchronous_(
          {.experiment = experiment_, .model = model_, .grid = grid_, .batches = batches_}),
      injections_(injections_of(experiment_, world.fabric(), world.nodes())) {
  expect_batch_norms_train(model_, grid_.choice(),
                           std::min(experiment_.train.global_batch, dataset_->training.shape.n),
                           experiment_.train.accumulate);
  if (grid_.is_whole()) make_executor();
  count_others();
  initialize(layout_, static_cast<std::uint64_t>(experiment_.train.seed), parameters_,
             model_state().statistics);
  grid_.shared_statistics().start(statistics_);
  if (scheme_of(experiment_.update).windows) {
    lazy_ = plan_lazy_layers(model_, layout_, lazy_layers_of(experiment_));
  }
  if (scheme_of(experiment_.update).levels) {
    levels_ = averaging_groups(experiment_, grid_.leaders());
  }
  if (is_paced(experiment_) && !experiment_.update.replay.empty()) {
    script_ = read_token_trace(experiment_.update.replay, grid_.grid().pc);
  }
}

// Counts what the optimizer keeps for every parameter, the sum of gradients over micro-batches, and
// batches: each stream has one that is computed and some that are prepared, and so has evaluation.
void Trainer::count_others() {
  const std::size_t gradients = layout_.parameter_count * sizeof(float);
  count_allocation(memory_, "the optimizer's state", update_memory().optimizer);
  if (batches_.micro_batches() > 1)
    count_allocation(memory_, "the sum of gradients over micro-batches", gradients);
  std::int64_t samples = batches_.buffered_samples(evaluation_batch());
  if (own_batches_) samples += own_batches_->buffered_samples(0);
  count_allocation(memory_, "the buffers for batches", batch_bytes(model_.input, samples));
  const std::size_t decoding =
      batches_.thread_bytes(true) + (own_batches_ ? own_batches_->thread_bytes(false) : 0);
  if (decoding > 0) count_allocation(memory_, "the threads that decode images", decoding);
}

// The writer's thread has a copy of what a checkpoint has while training goes on.
void Trainer::count_updates() {
  const UpdateMemory updates = update_memory();
  const std::string name = "the update scheme \"" + experiment_.update.scheme + "\"";
  count_allocation(memory_, name.c_str(), updates.scheme);
  if (!experiment_.checkpoint.wanted()) return;
  count_allocation(memory_, "the copy for a checkpoint",
                   checkpoint_copy(experiment_, static_cast<bool>(options_.make_scheme),
                                   layout_.parameter_count, statistics_.size()) +
                       updates.saved);
}

// The first rank of a node, among those that hold the same part of the model, has the store of
// cyclic updates.
UpdateMemory Trainer::update_memory() const {
  const ProcessGrid grid = grid_.grid();
  const auto node_of = [&](int rank) {
    return world_.ranks()[static_cast<std::size_t>(rank)].node;
  };
  bool has_store = true;
  for (int rank = grid.position_of(world_.rank()); rank < world_.rank(); rank += grid.pr) {
    if (node_of(rank) == node_of(world_.rank())) has_store = false;
  }
  return memory_of_updates(experiment_, {.layout = layout_,
                                         .grid = grid,
                                         .slices = grid_.block_slices(),
                                         .statistics = statistics_.size(),
                                         .lazy = lazy_,
                                         .has_store = has_store});
}

std::int64_t Trainer::total_steps() const {
  const std::int64_t all = experiment_.train.epochs * batches_.steps();
  const std::int64_t most = experiment_.train.max_steps;
  return most > 0 ? std::min(most, all) : all;
}

// train.max_steps ends a run, and changes no learning rate before its end. A sweep of rates goes
// through all of them in the steps that it has.
std::int64_t Trainer::steps_of_schedule() const {
  const bool sweeps = experiment_.optimizer.schedule == sync::Decay::exponential;
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
    // On a grid a rank without samples still takes part in exchanges, and needs kernels for that.
    options.training_batches.push_back(0);
  }
  options.evaluation_batch = evaluation_batch();
  options.seed = static_cast<std::uint64_t>(experiment_.train.seed);
  options.label_smoothing = static_cast<float>(experiment_.train.label_smoothing);
  options.precision = experiment_.train.precision;
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

// A model as a scheme sees it: flat arrays, and for each parameter block who reduces it.
sync::Replica Trainer::replica() {
  sync::Replica result{.world = &world_,
                       .parameters = parameters_,
                       .gradients = gradients_,
                       .statistics = statistics_,
                       .layers = {},
                       .statistics_over = &grid_.replicas(),
                       .slices = grid_.slices()};
  for (std::size_t i = 0; i < layout_.blocks.size(); ++i) {
    const ParameterBlock& block = layout_.blocks[i];
    result.layers.push_back({block.name, block.offset, block.size, grid_.groups_of(i)});
  }
  return result;
}

// Splitting is collective: all ranks make the groups of all levels in the same order.
void Trainer::make_averaging_groups() {
  for (const AveragingGroups& level : levels_) {
    const int averaging_group = level.group_of[static_cast<std::size_t>(grid_.replica())];
    averaging_groups_.push_back(grid_.replicas().split(averaging_group));
  }
}

void Trainer::choose_lazy_layers() {
  if (!scheme_of(experiment_.update).windows) return;
  LazyLayers choice = lazy_layers_of(experiment_);
  if (choice.kind != LazyLayers::Kind::automatic) return;  // the constructor has chosen
  if (resumed_ && resumed_->exact) {  // what was measured then; now it might be others
    choice = {LazyLayers::Kind::count, static_cast<double>(resumed_->manifest.lazy_convolutions)};
    lazy_ = plan_lazy_layers(model_, layout_, choice);
    return;
  }
  const std::size_t unhidden =
      measure_unhidden_layers(world_, *executor_, batches_.load(0, 0), replica().layers,
                              model_state(), experiment_.train.reduce_precision);
  lazy_ = plan_lazy_layers(model_, layout_, choice, unhidden);
}

// Ranks of a replica that hold the same layer compute it alike, and nothing brings their copies
// together again. The bits of a gradient depend on threads and instructions.
void Trainer::expect_equal_copies() {
  const int pr = grid_.grid().pr;
  if (pr == 1) return;
  const std::vector<ParameterBlock> whole = layout_of(model_).blocks;
  double copies = 0.0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    if (grid_.block_slices()[i] == pr && layout_.blocks[i].size == whole[i].size) copies += 1.0;
  }
  const auto [on_all] = sum_over_ranks(world_, std::array{copies});
  if (on_all == 0.0) return;
  expect_alike<ConfigError>(
      world_, facts_of_bits(threads_),
      "; ranks of a replica that hold the same layer must compute the same bits of it: give all "
      "ranks as many threads and equal processors, or split every layer");
}

// Parameters that model.skip leaves out keep their initial values. A run that is resumed has its
// own weights, and the file may be gone.
void Trainer::take_weights() {
  if (resumed_) return;
  // All ranks compare what they have: all have a file, or no rank.
  Fact fact;
  agree_on(world_, [&] { fact = fact_of_file("model.weights", experiment_.model.weights); });
  expect_same_files(world_, {fact});
  if (experiment_.model.weights.empty()) return;
  agree_on(world_, [&] {
    load_weights(SafetensorsFile(experiment_.model.weights), layout_, parameters_,
                 model_state().statistics, experiment_.model.skip);
    const std::string note = note_of_weights(experiment_.model.weights);
    if (!note.empty()) log_.note(note);
  });
  grid_.shared_statistics().start_from_taken(batches_.micro_batch_sizes(), statistics_);
}

// In this order on all ranks, because most of it is collective. The checkpoint is found before the
// scheme is made, since it says which layers were lazy and how much warm-up is left; it is restored
// last, when everything is there to take it; but for averages of parameters.
void Trainer::join() {
  grid_.join();
  if (!executor_) make_executor();
  // The executor knows which part of a range's images this rank reads.
  batches_.read_for(*executor_, evaluation_batch());
  if (own_batches_) own_batches_->read_for(*executor_, evaluation_batch());
  make_averaging_groups();
  expect_equal_copies();
  options_.run_folder = text_of_first_rank(world_, options_.run_folder.string());
  resumed_ = find_checkpoint(world_,
                             {.experiment = experiment_,
                              .model = model_,
                              .grid = grid_.choice(),
                              .folder = options_.run_folder,
                              .dataset = *dataset_,
                              .digests = digests_,
                              .total_steps = total_steps_},
                             options_.resume, log_);
  take_weights();
  choose_lazy_layers();
  take_averages();
  agree_on(world_, [&] { count_updates(); });
  SchemeParts parts{.replica = replica(),
                    .team = options_.team,
                    .layout = &layout_,
                    .warm_up_steps = warm_up_left(),
                    .local_from_step = local_from_step_of(experiment_, batches_.steps()),
                    .learning_rate = learning_rate_,
                    .lazy = lazy_,
                    .epoch_samples = batches_.epoch_samples(),
                    .script = std::move(script_),
                    .traces = &traces_};
  for (std::size_t level = 0; level < averaging_groups_.size(); ++level) {
    parts.levels.push_back({levels_[level].period, &averaging_groups_[level]});
  }
  const std::int64_t paced_steps = std::max<std::int64_t>(total_steps_ - warm_up_steps_, 1);
  parts.total_samples = paced_steps * experiment_.train.global_batch;
  scheme_ = options_.make_scheme ? make_own_scheme(experiment_, parts, options_.make_scheme)
                                 : make_scheme(experiment_, std::move(parts));
  link_.emplace(*scheme_, world_, layout_, gradients_, grid_,
                static_cast<std::size_t>(experiment_.update.bucket_bytes));
  link_->set_profile(options_.profile);
  if (batches_.micro_batches() > 1) link_->expect_micro_batches(options_.team);
  check_.emplace(world_, StepCheck::Parts{.grid = grid_,
                                          .executor = *executor_,
                                          .batches = batches_,
                                          .traffic = traffic_,
                                          .request = options_.request});
  losses_.join();
  begin_checkpoints();
  restore();
}

}  // namespace rondo::train

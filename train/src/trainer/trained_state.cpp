// How the state of a rank is made, and how it goes on from a checkpoint.
//
// The constructor and make_executor() communicate nothing; join() makes with the other ranks what
// they share. The memory that others allocate for the run is counted too, so that
// train.memory_limit refuses a run before its first step.

#include "trainer/trained_state.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <rondo/train/dataset.hpp>
#include <rondo/train/plan.hpp>
#include <rondo/train/weights.hpp>
#include <rondo/transport/world.hpp>

#include "checkpoint/resume.hpp"
#include "config/combinations.hpp"
#include "data/augmentations.hpp"
#include "trainer/agreement.hpp"
#include "trainer/meters.hpp"
#include "weights/model_weights.hpp"

namespace rondo::train {
namespace {

BatchIteratorOptions iterator_options(const Dataset& dataset, const Experiment& experiment,
                                      const GridMembership& grid, const TrainerOptions& options) {
  const std::int64_t micro_batches = experiment.train.accumulate;
  const int replicas = grid.grid().pc;
  const std::int64_t samples = std::min(experiment.train.global_batch, dataset.training.shape.n);
  if (const std::int64_t most = (samples + replicas - 1) / replicas; micro_batches > most) {
    throw ConfigError(  // those beyond would be empty
        fmt::format(
            "train.accumulate: {} micro-batches are more than the {} samples that a replica "
            "has of a step; give fewer",
            micro_batches, most));
  }
  LoaderOptions loader = loader_options(experiment, dataset);
  loader.on_broken = options.on_broken;
  // The augmentations of [data], then those of the program.
  const std::vector<Augmentation>& own = options.augmentations;
  loader.augmentations.insert(loader.augmentations.end(), own.begin(), own.end());
  return {.loader = std::move(loader),
          .rank = grid.replica(),
          .ranks = replicas,
          .micro_batches = micro_batches,
          // It is not known here whether the replicas of a program's own scheme step by themselves.
          .whole_batches = experiment.data.drop_last || needs_whole_batches(experiment) ||
                           options.make_scheme != nullptr};
}

/// The batches of a rank that draws its own mini-batches, each as large as its share of a global
/// batch.
std::unique_ptr<BatchIterator> make_own_batches(const Dataset& dataset,
                                                const Experiment& experiment,
                                                const GridMembership& grid,
                                                const TrainerOptions& trainer) {
  if (!is_paced(experiment)) return nullptr;
  BatchIteratorOptions options = iterator_options(dataset, experiment, grid, trainer);
  // A seed of its own: each rank goes through the training set in another order.
  options.loader.seed = worker_seed(options.loader.seed, options.rank);
  options.loader.global_batch =
      even_range(options.loader.global_batch, options.ranks, options.rank).size();
  options.rank = 0;
  options.ranks = 1;
  return std::make_unique<BatchIterator>(dataset, options);
}

std::pmr::vector<float> array(AccountedMemory& memory, const char* name, std::size_t elements) {
  const MemoryScope scope(&memory, name);
  return std::pmr::vector<float>(elements, 0.0F, &memory);
}

/// Counts what others allocate in ordinary memory, for the whole run.
void count_allocation(AccountedMemory& memory, const std::string& name, std::size_t bytes) {
  const MemoryScope scope(&memory, name);
  memory.account().add(bytes);
}

std::int64_t total_steps_of(const Experiment& experiment, std::int64_t steps_per_epoch) {
  const std::int64_t all = experiment.train.epochs * steps_per_epoch;
  const std::int64_t most = experiment.train.max_steps;
  return most > 0 ? std::min(most, all) : all;
}

// train.max_steps ends a run, and changes no learning rate before its end. A sweep of rates goes
// through all of them in the steps that it has.
std::int64_t steps_of_schedule(const Experiment& experiment, std::int64_t steps_per_epoch) {
  const bool sweeps = experiment.optimizer.schedule == sync::Decay::exponential;
  return sweeps ? total_steps_of(experiment, steps_per_epoch)
                : experiment.train.epochs * steps_per_epoch;
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

}  // namespace

TrainedState::TrainedState(transport::World& all, PreparedRun prepared, TrainerOptions given)
    : PreparedRun(std::move(prepared)),
      world(all),
      options(std::move(given)),
      threads(std::max(options.threads, 1)),
      grid(world, model, experiment),
      layout(grid.layout()),
      account(static_cast<std::size_t>(experiment.train.memory_limit)),
      memory(account),
      arena(account, &world.arena()),
      parameters(array(arena, "the array of parameters", layout.parameter_count)),
      gradients(array(arena, "the array of gradients", layout.parameter_count)),
      statistics(array(memory, "the array of statistics",
                       layout.statistic_count + grid.shared_statistics().size())),
      batches(*dataset, iterator_options(*dataset, experiment, grid, options)),
      own_batches(make_own_batches(*dataset, experiment, grid, options)),
      // On a grid activations travel between ranks, so they lie in shared memory.
      engine(threads, grid.is_whole() ? &memory : &arena, experiment.train.convolution),
      total_steps(total_steps_of(experiment, batches.steps())),
      warm_up_steps(warm_up_steps_of(experiment, batches.steps())),
      learning_rate(learning_rate_of(experiment, batches.steps(),
                                     steps_of_schedule(experiment, batches.steps()))) {}

void TrainedState::make_executor() {
  expect_batch_norms_train(model, grid.choice(),
                           std::min(experiment.train.global_batch, dataset->training.shape.n),
                           experiment.train.accumulate);
  if (grid.is_whole()) emplace_executor();
  count_others();
  initialize(layout, static_cast<std::uint64_t>(experiment.train.seed), parameters,
             model_state().statistics);
  grid.shared_statistics().start(statistics);
  if (scheme_of(experiment.update).windows) {
    lazy = plan_lazy_layers(model, layout, lazy_layers_of(experiment));
  }
  if (scheme_of(experiment.update).levels) {
    levels = averaging_groups(experiment, grid.leaders());
  }
  if (is_paced(experiment) && !experiment.update.replay.empty()) {
    script = read_token_trace(experiment.update.replay, grid.grid().pc);
  }
}

// Counts what the optimizer keeps for every parameter, and the sum of gradients over micro-batches.
void TrainedState::count_others() {
  const std::size_t sum = layout.parameter_count * sizeof(float);
  count_allocation(memory, "the optimizer's state", update_memory().optimizer);
  if (batches.micro_batches() > 1)
    count_allocation(memory, "the sum of gradients over micro-batches", sum);
  const std::size_t decoding =
      batches.thread_bytes(true) + (own_batches ? own_batches->thread_bytes(false) : 0);
  if (decoding > 0) count_allocation(memory, "the threads that decode images", decoding);
}

// The writer's thread has a copy of what a checkpoint has while training goes on.
void TrainedState::count_updates() {
  const UpdateMemory updates = update_memory();
  count_allocation(memory, "the update scheme \"" + experiment.update.scheme + "\"",
                   updates.scheme);
  if (!experiment.checkpoint.wanted()) return;
  count_allocation(memory, "the copy for a checkpoint",
                   checkpoint_copy(experiment, static_cast<bool>(options.make_scheme),
                                   layout.parameter_count, statistics.size()) +
                       updates.saved);
}

// The first rank of a node, among those that hold the same part of the model, has the store of
// cyclic updates.
UpdateMemory TrainedState::update_memory() const {
  const ProcessGrid shape = grid.grid();
  const auto node_of = [&](int rank) { return world.ranks()[static_cast<std::size_t>(rank)].node; };
  bool has_store = true;
  for (int rank = shape.position_of(world.rank()); rank < world.rank(); rank += shape.pr) {
    if (node_of(rank) == node_of(world.rank())) has_store = false;
  }
  return memory_of_updates(experiment, {.layout = layout,
                                        .grid = shape,
                                        .slices = grid.block_slices(),
                                        .statistics = statistics.size(),
                                        .lazy = lazy,
                                        .has_store = has_store});
}

bool TrainedState::is_paced_now() const noexcept {
  return is_paced(experiment) && run.step >= warm_up_steps;
}

std::int64_t TrainedState::paced_samples() const noexcept {
  const std::optional<sync::Pace> pace = scheme->pace();
  return pace ? pace->samples : 0;
}

// Paced ranks count samples; as steps of the global batch these choose the learning rate and the
// end.
std::int64_t TrainedState::step_at(std::int64_t samples) const noexcept {
  return std::min(warm_up_steps + samples / experiment.train.global_batch, total_steps);
}

// A scheme of the user's own has another description than the one that its configuration names.
bool TrainedState::steps_alone() const {
  const sync::SchemeDescription& description =
      options.make_scheme ? scheme->description() : scheme_of(experiment.update);
  return description.steps_alone() && run.step >= warm_up_steps;
}

// One of the user's own has a name of its own.
std::string TrainedState::scheme_name() const {
  return options.make_scheme && scheme ? std::string(scheme->description().name)
                                       : experiment.update.scheme;
}

// As many as training computes at once: so evaluation runs the same kernels, in the same memory. A
// smaller test set has kernels of its own.
std::int64_t TrainedState::evaluation_batch() const {
  const std::int64_t trained = batches.largest_micro_batch();
  const std::int64_t all = dataset->test.shape.n;
  return all > 0 ? std::min(all, trained) : trained;
}

ExecutorOptions TrainedState::executor_options() const {
  ExecutorOptions result;
  result.training_batches = batches.micro_batch_sizes();
  bool has_empty = batches.has_empty_micro_batches();
  if (own_batches) {
    const std::vector<std::int64_t> own = own_batches->micro_batch_sizes();
    result.training_batches.insert(result.training_batches.end(), own.begin(), own.end());
    has_empty = has_empty || own_batches->has_empty_micro_batches();
  }
  // On a grid a rank without samples still takes part in exchanges, and needs kernels for that.
  if (has_empty) result.training_batches.push_back(0);
  result.evaluation_batch = evaluation_batch();
  result.seed = static_cast<std::uint64_t>(experiment.train.seed);
  result.label_smoothing = static_cast<float>(experiment.train.label_smoothing);
  result.loss = options.loss;
  result.precision = experiment.train.precision;
  return result;
}

ModelState TrainedState::model_state() {
  return {parameters, gradients, std::span(statistics).first(layout.statistic_count)};
}

void TrainedState::emplace_executor() {
  const ModelState arrays = model_state();
  if (grid.is_whole()) {
    executor.emplace(engine, model, arrays, executor_options());
  } else {
    executor.emplace(engine, model, grid.part(&arena), arrays, executor_options());
  }
}

// A model as a scheme sees it: flat arrays, and for each parameter block who reduces it.
sync::Replica TrainedState::replica() {
  sync::Replica result{.world = &world,
                       .parameters = parameters,
                       .gradients = gradients,
                       .statistics = statistics,
                       .layers = {},
                       .statistics_over = &grid.replicas(),
                       .slices = grid.slices()};
  for (std::size_t i = 0; i < layout.blocks.size(); ++i) {
    const ParameterBlock& block = layout.blocks[i];
    result.layers.push_back({block.name, block.offset, block.size, grid.groups_of(i)});
  }
  return result;
}

// The executor knows which part of a range's images this rank reads. Each stream of batches has one
// that is computed and some that are prepared, and so has evaluation.
void TrainedState::read_batches() {
  batches.read_for(*executor, evaluation_batch());
  std::size_t bytes = batches.batch_bytes(evaluation_batch());
  if (own_batches) {
    own_batches->read_for(*executor, evaluation_batch());
    bytes += own_batches->batch_bytes(0);
  }
  count_allocation(memory, "the buffers for batches", bytes);
}

// In this order on all ranks, because most of it is collective. The checkpoint is found before the
// scheme is made, since it says which layers were lazy and how much warm-up is left; restore()
// takes it over when everything is there to take it; but for averages of parameters.
void TrainedState::join(const RunLog& log) {
  grid.join();
  if (!executor) emplace_executor();
  read_batches();
  for (const AveragingGroups& level : levels) {
    const int group = level.group_of[static_cast<std::size_t>(grid.replica())];
    level_groups.push_back(grid.replicas().split(group));
  }
  expect_equal_copies();
  options.run_folder = text_of_first_rank(world, options.run_folder.string());
  resumed = find_checkpoint(*this, log);
  take_weights(log);
  choose_lazy_layers();
  take_averages();
  agree_on(world, [&] { count_updates(); });
  make_update_scheme();
}

// Ranks of a replica that hold the same layer compute it alike, and nothing brings their copies
// together again. The bits of a gradient depend on threads and instructions.
void TrainedState::expect_equal_copies() {
  const int pr = grid.grid().pr;
  if (pr == 1) return;
  const std::vector<ParameterBlock> whole = layout_of(model).blocks;
  double copies = 0.0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    if (grid.block_slices()[i] == pr && layout.blocks[i].size == whole[i].size) copies += 1.0;
  }
  const auto [on_all] = sum_over_ranks(world, std::array{copies});
  if (on_all == 0.0) return;
  expect_alike<ConfigError>(
      world, facts_of_bits(threads),
      "; ranks of a replica that hold the same layer must compute the same bits of it: give all "
      "ranks as many threads and equal processors, or split every layer");
}

// Parameters that model.skip leaves out keep their initial values. A run that is resumed has its
// own weights, and the file may be gone.
void TrainedState::take_weights(const RunLog& log) {
  if (resumed) return;
  // All ranks compare what they have: all have a file, or no rank.
  const auto fact = [&] { return fact_of_file("model.weights", experiment.model.weights); };
  expect_same_files(world, [&] { return std::vector<Fact>{fact()}; }, "data: ");
  if (experiment.model.weights.empty()) return;
  agree_on(world, [&] {
    load_weights(SafetensorsFile(experiment.model.weights), layout, parameters,
                 model_state().statistics, experiment.model.skip);
    const std::string note = note_of_weights(experiment.model.weights);
    if (!note.empty()) log.note(note);
  });
  grid.shared_statistics().start_from_taken(batches.micro_batch_sizes(), statistics);
}

void TrainedState::choose_lazy_layers() {
  if (!scheme_of(experiment.update).windows) return;
  LazyLayers choice = lazy_layers_of(experiment);
  if (choice.kind != LazyLayers::Kind::automatic) return;  // make_executor() has chosen
  if (resumed && resumed->exact) {  // what was measured then; now it might be others
    choice = {LazyLayers::Kind::count, static_cast<double>(resumed->manifest.lazy_convolutions)};
    lazy = plan_lazy_layers(model, layout, choice);
    return;
  }
  const std::size_t unhidden =
      measure_unhidden_layers(world, *executor, batches.load(0, 0), replica().layers, model_state(),
                              experiment.train.reduce_precision);
  lazy = plan_lazy_layers(model, layout, choice, unhidden);
}

// Before the scheme is made, which may take parameters for its own.
void TrainedState::take_averages() {
  if (!resumed || resumed->exact) return;
  agree_on(world, [&] {
    const ModelWeights mean = weights_of_checkpoint(resumed->path, resumed->manifest, model);
    take_part(mean, layout_of(model), layout, parameters, model_state().statistics);
  });
  grid.shared_statistics().start_from_taken(batches.micro_batch_sizes(), statistics);
}

// A scheme that is not restored begins anew, and so would its warm-up.
std::int64_t TrainedState::warm_up_left() const {
  if (!resumed || resumed->exact || keeps_momenta()) return warm_up_steps;
  return std::max<std::int64_t>(warm_up_steps - resumed->manifest.step, 0);
}

void TrainedState::make_update_scheme() {
  SchemeParts parts{.replica = replica(),
                    .team = options.team,
                    .layout = &layout,
                    .warm_up_steps = warm_up_left(),
                    .local_from_step = local_from_step_of(experiment, batches.steps()),
                    .learning_rate = learning_rate,
                    .lazy = lazy,
                    .epoch_samples = batches.epoch_samples(),
                    .script = std::move(script),
                    .traces = &traces};
  for (std::size_t level = 0; level < level_groups.size(); ++level) {
    parts.levels.push_back({levels[level].period, &level_groups[level]});
  }
  const std::int64_t paced_steps = std::max<std::int64_t>(total_steps - warm_up_steps, 1);
  parts.total_samples = paced_steps * experiment.train.global_batch;
  scheme = options.make_scheme ? make_own_scheme(experiment, parts, options.make_scheme)
                               : make_scheme(experiment, std::move(parts));
}

void TrainedState::complete_parameters() {
  for (std::size_t block = 0; block < layout.blocks.size(); ++block) scheme->make_ready(block);
}

Manifest TrainedState::manifest() const {
  return {.program = RONDO_VERSION,
          .config = to_toml(experiment),
          .step = run.step,
          .epoch = run.epoch,
          .ranks = world.size(),
          .threads = threads,
          .replicas = grid.grid().pc,
          .nodes = world.nodes(),
          .lazy_convolutions = lazy.names.size(),
          .training_samples = dataset->training.shape.n,
          .training_data = digests.training,
          .test_data = digests.test,
          .mean = dataset->mean,
          .stddev = dataset->stddev,
          .class_names = dataset->class_names,
          .images = DescribedImages{.name = dataset->name,
                                    .hwc = {model.input.h, model.input.w, model.input.c},
                                    .classes = model.classes},
          .layers = checksum_of_layers(model)};
}

// Under gradients that are reduced in every step all ranks have the same momenta, whatever their
// number. On a grid each has those of its part.
bool TrainedState::keeps_momenta() const {
  const sync::SchemeDescription& description = scheme_of(experiment.update);
  // Windows and periods are states of a scheme that another number of ranks cannot go on with, and
  // so are shares of an optimizer's. The states of a user's own scheme are not known.
  const bool in_step =
      !description.steps_alone() && !description.windows && !description.divides_optimizer;
  const Manifest& manifest = resumed->manifest;
  return !options.make_scheme && grid.is_whole() && manifest.replicas == manifest.ranks &&
         (in_step || manifest.step < warm_up_steps);
}

void TrainedState::restore() {
  if (resumed->exact) {
    copy_back(*resumed, world.rank(), Part::parameters, parameters);
    copy_back(*resumed, world.rank(), Part::statistics, statistics);
    scheme->restore(resumed->read(world.rank(), Part::scheme));
  } else if (keeps_momenta()) {
    scheme->restore(resumed->read(0, Part::scheme));
  }
}

}  // namespace rondo::train

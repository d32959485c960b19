// Everything that ranks have to agree on before one of them makes a part of the run: first the
// configuration, then the data, then the grid. Each step begins only when the one before it has
// succeeded on all ranks.

#include "trainer/prepare.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include <rondo/tensor/data_type.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/train/dataset.hpp>
#include <rondo/train/parameters.hpp>
#include <rondo/train/plan.hpp>
#include <rondo/train/plan_best.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "benchmark/model_benchmark.hpp"
#include "config/combinations.hpp"
#include "config/key.hpp"
#include "layers/layer_type.hpp"
#include "model/described.hpp"
#include "plan/closed_forms.hpp"
#include "plan/plan_options.hpp"
#include "plan/world_costs.hpp"
#include "schemes/make_scheme.hpp"
#include "trainer/agreement.hpp"
#include "trainer/damaged_log.hpp"
#include "weights/checksum.hpp"

namespace rondo::train {
namespace {

// A mistake in the model is a mistake of the configuration: it names a key.
Model usual_model(const Experiment& experiment) {
  try {
    return model_of(experiment);
  } catch (const DescriptionError& error) {
    throw ConfigError(error.what());
  } catch (const std::invalid_argument& error) {
    throw ConfigError(std::string("model.name: ") + error.what());
  }
}

Model model_for(const Dataset& dataset, const Experiment& experiment) {
  try {
    return model_of(experiment, dataset.training.shape, dataset.classes);
  } catch (const DescriptionError& error) {
    throw ConfigError(error.what());
  } catch (const std::invalid_argument& error) {
    throw ConfigError("model.name: " + experiment.model.name + " does not fit the images of " +
                      experiment.data.name + ": " + error.what());
  }
}

Model own_model_for(const Dataset& dataset, const Model& model) {
  try {
    static_cast<void>(layout_of(model));
    static_cast<void>(shapes_of(model, 2));  // whether layers give as many images as they get
  } catch (const std::invalid_argument& error) {
    throw ConfigError("the model " + model.name + ": " + error.what());
  }
  const tensor::Shape images = dataset.training.shape.with_n(1);
  if (model.input == images && model.classes == dataset.classes) return model;
  throw ConfigError("the model " + model.name + " takes images of " + size_text(model.input) +
                    " in " + std::to_string(model.classes) + " classes, and the data have " +
                    size_text(images) + " in " + std::to_string(dataset.classes));
}

// Lent ones end with the caller, not with the run.
std::shared_ptr<const Dataset> lend(const Dataset& dataset) {
  return {std::shared_ptr<const Dataset>(), &dataset};
}

/// Keys that concern one rank or its node alone, and may differ.
constexpr auto keys_of_one_rank = std::to_array<std::string_view>(
    {"data.path", "data.decoders", "data.decoder_cpus", "model.weights", "train.threads",
     "update.replay", "transport.deadline_seconds", "transport.stall_warning_seconds",
     "transport.interface"});

std::vector<Fact> facts_of(const Experiment& experiment) {
  std::vector<Fact> facts;
  for (const Key& key : all_keys()) {
    const std::string name = key.full_name();
    if (std::ranges::find(keys_of_one_rank, name) != keys_of_one_rank.end()) continue;
    facts.push_back({name, to_toml_value(key.get(experiment))});
  }
  return facts;
}

template <typename T>
std::string digest(const std::vector<T>& values) {
  return checksum_of(std::as_bytes(std::span(values)));
}

// Their number comes first: it is what tells most.
std::vector<Fact> facts_of(const std::string& which, const Images& images) {
  return {{"the number of " + which, std::to_string(images.shape.n)},
          images.source ? Fact{"the digest of the files of " + which, images.source->digest()}
                        : Fact{"the digest of the pixels of " + which, digest(images.pixels)},
          {"the digest of the labels of " + which, digest(images.labels)}};
}

std::string digest_of_values(const std::vector<Fact>& facts) {
  std::vector<char> values;
  for (const Fact& fact : facts) {
    values.insert(values.end(), fact.value.begin(), fact.value.end());
    values.push_back('\0');
  }
  return digest(values);
}

// And sets what a run that goes on from this one compares.
std::vector<Fact> facts_of(const Dataset& dataset, const Model& model, const Experiment& experiment,
                           DataDigests& digests) {
  const std::string layers = description_of(model);
  std::vector<Fact> facts;
  facts.push_back({"the digest of the model's layers",
                   digest(std::vector<char>(layers.begin(), layers.end()))});
  const std::vector<Fact> training = facts_of("training images", dataset.training);
  const std::vector<Fact> test = facts_of("test images", dataset.test);
  digests = {.training = digest_of_values(training), .test = digest_of_values(test)};
  facts.insert(facts.end(), training.begin(), training.end());
  facts.insert(facts.end(), test.begin(), test.end());
  facts.push_back({"the digest of the mean of images", digest(dataset.mean)});
  facts.push_back({"the digest of the standard deviation of images", digest(dataset.stddev)});
  if (is_paced(experiment)) {
    facts.push_back(fact_of_file("update.replay", experiment.update.replay));
  }
  return facts;
}

std::int64_t threads_of(const Experiment& experiment) {
  return std::max<std::int64_t>(experiment.train.threads, 1);
}

void check_slow_ranks(const Experiment& experiment, int ranks) {
  for (const auto& [rank, factor] : experiment.inject.slow_ranks) {
    if (rank < ranks) continue;
    throw ConfigError("inject.slow_ranks: there is no rank " + std::to_string(rank) + " among " +
                      std::to_string(ranks) + "; they count from 0");
  }
}

// Hosts may differ: one that cannot compute what is asked for ends the run on all of them.
void check_processor(const Experiment& experiment) {
  try {
    tensor::require_computable(experiment.train.precision);
  } catch (const std::runtime_error& error) {
    throw ConfigError(std::string("train.precision: ") + error.what() +
                      ", with train.precision = \"fp32\"");
  }
}

// A program may have given a value that no file could. The required keys name data and a model, of
// which it may have brought its own; whoever looks for them by name says that there are none.
void check_limits(const Experiment& experiment) {
  for (const Key& key : all_keys()) {
    if (key.limits.required) continue;
    const std::string problem = complaint(key.limits, key.get(experiment));
    if (!problem.empty()) refuse_key(key.full_name(), "{}", problem);
  }
}

constexpr std::uint64_t whole_file = std::numeric_limits<std::uint64_t>::max();

void agree_on_configuration(transport::World& world, const Experiment& experiment) {
  const std::string difference = difference_from_first_rank(world, facts_of(experiment));
  agree_on(world, [&] {
    check_limits(experiment);
    check_combinations(experiment);
    check_slow_ranks(experiment, world.size());
    check_processor(experiment);
    if (difference.empty()) return;
    throw ConfigError(difference + "; start all ranks with the same configuration");
  });
}

void agree_on_data(transport::World& world, PreparedRun& run) {
  // A program's own source of images may fail to give its digest.
  expect_same_files(
      world, [&] { return facts_of(*run.dataset, run.model, run.experiment, run.digests); },
      "data: ");
}

// Links and kernels are measured, so that the planner's result is that of the rank that measured.
// Its choice travels as the text of a configuration in which nothing else is said, but for the
// names that every one needs.
Experiment::Grid grid_of_first_rank(transport::World& world, const Experiment::Grid& mine) {
  Experiment message;
  message.data.name = "synthetic";
  message.model.name = model_names().front();
  message.grid = mine;
  return parse_experiment(text_of_first_rank(world, to_toml(message)), "grid.plan").grid;
}

// A whole model, as it is for measure_slowdown(), may not fit into limited memory.
double slowdown_of(transport::World& world, const PreparedRun& run) {
  const auto threads = static_cast<int>(threads_of(run.experiment));
  if (run.experiment.train.memory_limit > 0) return ranks_per_core(world, threads);
  if (!has_neighbours(world)) return 1.0;
  const std::int64_t batch = run.experiment.train.global_batch;
  std::unique_ptr<BenchmarkStep> step;
  agree_on(world, [&] {
    step = make_slowdown_step(run.model, (batch + world.size() - 1) / world.size(), threads,
                              run.experiment.train.precision);
  });
  return measure_slowdown(world, *step, threads);
}

// Nothing where rank 0 has a grid and does not ask.
WorldCosts costs_of(transport::World& world, const PreparedRun& run, bool asks) {
  std::array asked{asks ? 1 : 0};
  world.communicator().broadcast(std::span<int>(asked), 0).wait();
  if (asked[0] == 0) return {};
  WorldCosts costs = measure_world(world);
  costs.slowdown = slowdown_of(world, run);
  const auto threads = static_cast<int>(threads_of(run.experiment));
  const std::string difference = difference_from_first_rank(world, facts_of_bits(threads));
  std::array equal{difference.empty() ? 1 : 0};
  world.communicator().allreduce(std::span<int>(equal), transport::ReduceOp::min).wait();
  costs.replicas = equal[0] == 1;
  return costs;
}

void choose_grid(transport::World& world, PreparedRun& run,
                 const std::optional<Experiment::Grid>& earlier, transport::Team* team) {
  const WorldCosts costs = costs_of(world, run, !earlier);
  AutomaticGrid chosen;
  // Measuring may take longer than any message may.
  agree_on_first_rank(world, [&] {
    if (earlier) {
      chosen.grid = *earlier;
      chosen.grid.batch_norm = run.experiment.grid.batch_norm;
    } else {
      chosen = choose_grid_automatically(run.model, run.experiment, world, costs, team,
                                         decoded_sets(*run.dataset));
    }
  });
  run.experiment.grid = grid_of_first_rank(world, chosen.grid);
  run.planned = chosen.expected;
}

// Or nobody could use the file of weights that has them.
void expect_names_of_all_classes(const Dataset& dataset) {
  const std::size_t names = dataset.class_names.size();
  if (names == 0 || names == static_cast<std::size_t>(dataset.classes)) return;
  throw ConfigError(
      fmt::format("the data set has {} classes and {} names for them; give each a "
                  "name, or none",
                  dataset.classes, names));
}

// Readers of files look at theirs; a wrong one would end the run when its batch comes.
void expect_labels(const char* which, const Images& images, std::int64_t classes) {
  for (std::size_t i = 0; i < images.labels.size(); ++i) {
    const std::int32_t label = images.labels[i];
    if (label >= 0 && label < classes) continue;
    throw ConfigError(fmt::format("data: {} image {} has the label {}, which is none of 0 to {}",
                                  which, i, label, classes - 1));
  }
}

std::string names_of(const std::vector<Augmentation>& augmentations) {
  std::string names;
  for (const Augmentation& one : augmentations) names += (names.empty() ? "" : ", ") + one.name;
  return names.empty() ? "none" : names;
}

}  // namespace

std::string difference_of_parts(transport::World& world, const TrainerOptions& options) {
  const auto given = [](bool is) { return is ? std::string("one") : std::string("none"); };
  return difference_from_first_rank(
      world, {{"TrainerOptions::make_scheme", given(options.make_scheme != nullptr)},
              {"TrainerOptions::diverges", given(options.diverges != nullptr)},
              {"TrainerOptions::loss", given(options.loss != nullptr)},
              {"TrainerOptions::augmentations", names_of(options.augmentations)}});
}

std::vector<Fact> facts_of_bits(int threads) {
  return {{"train.threads", std::to_string(threads)},
          {"the kernels of the processor", tensor::kernel_set()}};
}

// What is no file has the digest of an empty one: whoever needs it says so.
Fact fact_of_file(const std::string& key, const std::filesystem::path& file) {
  const std::string name = "the digest of " + key;
  if (file.empty()) return {name, "that of no file"};
  std::error_code ignored;
  const bool is_file = std::filesystem::is_regular_file(file, ignored);
  return {name, is_file ? checksum_of_beginning(file, whole_file) : checksum_of({})};
}

void expect_same_files(transport::World& world, const std::function<std::vector<Fact>()>& facts,
                       std::string_view before) {
  std::vector<Fact> mine;
  agree_on(world, [&] { mine = facts(); });
  expect_alike<DataError>(world, mine, "; give all ranks the same files", before);
}

// A synthetic data set takes its shape from the model, where the experiment gives none; then the
// model takes its own from the data set, whichever that is.
PreparedRun load_run(const Experiment& experiment, const Dataset* own, const Model* own_model) {
  PreparedRun run{.experiment = experiment};
  if (own != nullptr) {
    expect_names_of_all_classes(*own);
    expect_labels("training", own->training, own->classes);
    expect_labels("test", own->test, own->classes);
    run.dataset = lend(*own);
  } else {
    const Model usual = own_model != nullptr ? *own_model : usual_model(experiment);
    run.dataset =
        std::make_shared<const Dataset>(load_dataset(experiment.data, usual.input, usual.classes));
  }
  run.model = own_model != nullptr ? own_model_for(*run.dataset, *own_model)
                                   : model_for(*run.dataset, experiment);
  return run;
}

PreparedRun prepare_run(transport::World& world, const Experiment& experiment, const Dataset* own,
                        const Model* own_model, const std::optional<Experiment::Grid>& earlier,
                        transport::Team* team) {
  // Each of these steps fails on all ranks with an error of the same type, or on none.
  agree_on_configuration(world, experiment);
  PreparedRun run;
  agree_on(world, [&] {
    if (own != nullptr && !(experiment.data.mean.empty() && experiment.data.stddev.empty())) {
      throw ConfigError(
          "data.mean, data.stddev: the program's own data set has them; leave the keys out");
    }
    run = load_run(experiment, own, own_model);
  });
  agree_on_data(world, run);
  if (experiment.grid.plan == PlanChoice::automatic) choose_grid(world, run, earlier, team);
  return run;
}

namespace {

PlanOptions options_of(const Model& model, const Experiment& experiment, DecodedSets decoded,
                       const transport::World& world, const WorldCosts& costs) {
  PlanOptions options = plan_options(experiment, model);
  options.ranks = world.size();
  options.ranks_per_node = ranks_per_node(world.ranks());
  options.fabric = costs.fabric;
  options.node = costs.node;
  options.slowdown = costs.slowdown;
  options.replicas = options.replicas && costs.replicas;
  options.buffered_batches = buffered_batches(experiment, decoded);
  return options;
}

// A search that would measure more shapes takes the rest at the rates of those that it has.
constexpr int most_measurements = 200;

// One node has no link to another.
std::string text_of_links(const WorldCosts& costs, int nodes) {
  const auto link = [](const LinkCost& cost) {
    return fmt::format("{:.3g} us and {:.3g} GB/s", 1e6 * cost.alpha_seconds,
                       1e-9 * cost.bandwidth);
  };
  const std::string between = nodes == 1 ? "" : ", between " + link(costs.fabric);
  return "within nodes " + link(costs.node) + between;
}

// `agreement` is what every grid takes besides.
std::string expectation(const BestPlan& best, double agreement, const WorldCosts& costs, int nodes,
                        int measured) {
  return fmt::format(
      "planned {} x {}: {:.4g} ms a step, {:.4g} of them computing, which takes {:.2f} times as "
      "long beside other ranks; messages measured {}; {} kernels measured, others known",
      best.grid.pr, best.grid.pc, 1e3 * (best.overlapped_seconds + agreement),
      1e3 * best.compute_seconds, costs.slowdown, text_of_links(costs, nodes), measured);
}

// A home that cannot be written to, as on many clusters' nodes, ends no run.
std::string problem_of_keeping(const ComputeTable& table) {
  try {
    table.save();
    return {};
  } catch (const std::runtime_error& error) {
    return std::string("; their times were not kept: ") + error.what();
  }
}

}  // namespace

AutomaticGrid choose_grid_automatically(const Model& model, const Experiment& experiment,
                                        const transport::World& world, const WorldCosts& costs,
                                        transport::Team* team, DecodedSets decoded) {
  const PlanOptions options = options_of(model, experiment, decoded, world, costs);
  std::vector<BestPlan> plans;
  ComputeTable table(options.threads, kernel_times_file(), options.type,
                     {.optimizer = experiment.optimizer, .team = team});
  try {
    plans = measured_best_plans(model, options, table, most_measurements);
  } catch (const std::invalid_argument& error) {
    throw ConfigError(std::string("grid.plan: \"auto\" is impossible: ") + error.what());
  }
  const std::string unkept = problem_of_keeping(table);
  const BestPlan& best = plans.front();
  if (!best.refused.empty()) {
    throw ConfigError("grid.plan: \"auto\" finds no grid for " + std::to_string(world.size()) +
                      " ranks: " + best.refused);
  }
  // Replicas that step alone agree about once a second only.
  const bool alone = scheme_of(experiment.update).steps_alone();
  const double agreement = alone ? 0.0 : agreement_seconds(options);
  AutomaticGrid chosen{
      .grid = grid_keys(best),
      .expected =
          expectation(best, agreement, costs, world.nodes(), table.measurements()) + unkept};
  chosen.grid.plan = PlanChoice::chosen;
  chosen.grid.batch_norm = experiment.grid.batch_norm;
  return chosen;
}

}  // namespace rondo::train

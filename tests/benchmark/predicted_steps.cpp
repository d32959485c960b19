// The time of a training step, beside the planner's prediction:
//   predicted-steps grids|schemes [rounds=R] [steps=N] [LATENCY_US MEGABYTES_PER_S [RANKS...]]
//                 default: rounds=5, steps=32 of grids and steps=64 of schemes, 1000 12 2 4 8
// Ranks are threads, each a fake node; the link between them is slowed to the given latency and
// bandwidth, so that ranks which share a core take little of a step. The planner gets what
// grid.plan = "auto" gives it: times of kernels measured alone, how much slower ranks compute
// beside each other, and a link measured by messages.
//
//   grids    three networks by synchronous updates on every grid, with the best splits of its
//            layers; the grid that "auto" takes is marked, and how much longer than the fastest of
//            its ranks it took
//   schemes  one network by every update scheme, those of docs/results.md over a slow link among
//            them; predicted as by `rondo plan --scaling --scheme`
//
// A row is the median of R rounds. The speed of a shared machine changes, so each round predicts
// from the costs that were measured just before its run and just behind it: the mean of both
// predictions. Nothing is kept from one measurement to the next. A round's error is that of its
// prediction to its run; printed are the medians of what was predicted, of what was measured and of
// the errors, and the least and the greatest error.
//
// A run measures the median step, for schemes the mean, behind the first quarter of the steps. For
// schemes, their number is a multiple of every period, so that no round is cut. An epoch has 200
// steps and ends with an evaluation, which no run reaches.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <rondo/train/experiment.hpp>
#include <rondo/train/parameters.hpp>
#include <rondo/train/plan_best.hpp>
#include <rondo/train/scaling.hpp>
#include <rondo/train/trainer.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "benchmark/model_benchmark.hpp"
#include "config/combinations.hpp"
#include "plan/compute_table.hpp"
#include "plan/message_costs.hpp"
#include "plan/world_costs.hpp"

namespace {

using namespace rondo;
using namespace rondo::train;
using Clock = std::chrono::steady_clock;

constexpr int most_measurements = 200;
constexpr std::int64_t global_batch = 32;
constexpr std::int64_t steps_of_epoch = 200;
constexpr std::int64_t grid_steps = 32;
constexpr std::int64_t scheme_steps = 64;  // three quarters are three times the longest window

struct Setting {
  std::int64_t rounds = 5;
  std::int64_t steps = 0;
  double latency_us = 1000.0;
  double megabytes_per_second = 12.0;
  std::vector<int> ranks = {};
};

Experiment experiment_of(const std::string& network, std::int64_t steps) {
  static const std::string vgg =
      "{kind = 'convolution', filters = 32},{kind = 'activation'},{kind = 'max_pooling'},"
      "{kind = 'convolution', filters = 64},{kind = 'activation'},{kind = 'max_pooling'},"
      "{kind = 'convolution', filters = 128},{kind = 'activation'},{kind = 'max_pooling'},"
      "{kind = 'fully_connected', outputs = 256},{kind = 'activation'},"
      "{kind = 'fully_connected', outputs = 10}";
  const std::string model =
      network == "vgg5"
          ? "name = 'custom'\ninput = [32, 32, 3]\nclasses = 10\nlayers = [" + vgg + "]"
          : "name = '" + network + "'";
  Experiment experiment = parse_experiment(
      "[data]\nname = 'synthetic'\ntraining = 6400\ntest = 32\n[model]\n" + model +
          "\n[train]\nepochs = 100\nthreads = 1\n[optimizer]\nlearning_rate = 0.001\n",
      "predicted-steps");
  experiment.train.global_batch = global_batch;
  experiment.train.max_steps = steps;
  return experiment;
}

/// When the steps of a run ended, on this rank.
std::vector<double> step_ends(transport::World& world, const Experiment& experiment,
                              const std::filesystem::path& folder = {}) {
  std::vector<double> ends;
  TrainerOptions options;
  options.run_folder = folder;
  options.on_step = [&] {
    ends.push_back(std::chrono::duration<double>(Clock::now().time_since_epoch()).count());
  };
  train::train(world, experiment, options);
  return ends;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

double median_step(const std::vector<double>& ends) {
  std::vector<double> steps;
  for (std::size_t i = ends.size() / 4; i < ends.size(); ++i)
    steps.push_back(ends[i] - ends[i - 1]);
  return median(steps);
}

double mean_step(const std::vector<double>& ends) {
  const std::size_t first = ends.size() / 4 - 1;
  return (ends.back() - ends[first]) / static_cast<double>(ends.size() - 1 - first);
}

/// Rank 0's, on every rank.
template <typename T>
T of_first_rank(transport::World& world, T value) {
  world.communicator().broadcast(std::span(&value, 1), 0).wait();
  return value;
}

void print_title(const Setting& setting) {
  std::printf("%g us, %g MB/s, %lld steps, %lld rounds\n%-10s %5s %-62s %10s %10s %8s %18s\n",
              setting.latency_us, setting.megabytes_per_second,
              static_cast<long long>(setting.steps), static_cast<long long>(setting.rounds),
              "network", "ranks", "grid or scheme", "predicted", "measured", "error",
              "least and greatest");
}

/// The predicted and the measured seconds of each round.
struct Rounds {
  std::vector<double> predicted = {};
  std::vector<double> measured = {};

  void print(const char* network, int ranks, const std::string& how) const {
    std::vector<double> errors;
    for (std::size_t i = 0; i < measured.size(); ++i) {
      errors.push_back(100.0 * (predicted[i] / measured[i] - 1.0));
    }
    const auto [least, greatest] = std::ranges::minmax(errors);
    std::printf("%-10s %5d %-62s %7.2f ms %7.2f ms %+6.1f %% %+7.1f %% %+7.1f %%\n", network, ranks,
                how.c_str(), 1e3 * median(predicted), 1e3 * median(measured), median(errors), least,
                greatest);
    std::fflush(stdout);
  }
};

/// The costs that the planner gets, as they were at one time; the table is rank 0's.
struct Costs {
  WorldCosts world = {};
  ComputeTable table{1};
};

/// The costs of one plan's work; all else is too slow to be chosen. So a search among all plans
/// finds this one, and predicts it from other measurements than those by which it was chosen.
class CostsOfPlan final : public ComputeCosts {
 public:
  CostsOfPlan(const ComputeTable& table, const std::vector<LocalWork>& work) : table_(table) {
    for (const LocalWork& each : work) known_.insert(name_of(each));
  }

  [[nodiscard]] WorkSeconds seconds(const LocalWork& work) const override {
    constexpr double forever = 1e6;
    if (work.input.size() == 0 || known_.contains(name_of(work))) return table_.seconds(work);
    return {.forward = forever};
  }
  [[nodiscard]] double update_seconds(std::size_t parameters) const override {
    return table_.update_seconds(parameters);
  }

 private:
  static std::string name_of(const LocalWork& work) { return work.layer + " " + key_of(work); }

  const ComputeTable& table_;
  std::set<std::string> known_;
};

/// One rank of the measurements.
class Rank {
 public:
  Rank(transport::World& world, const Setting& setting) : world_(world), setting_(setting) {}

  void grids() {
    for (const char* network : {"lenet5", "vgg5", "resnet20"}) all_grids(network);
  }

  void schemes() {
    const Experiment plain = experiment_of("resnet20", setting_.steps);
    for (const char* keys :
         {"scheme = 'synchronous'", "scheme = 'sharded'",
          "scheme = 'lazy'\nmax_interval = 4\nlazy_layers = '8'",
          "scheme = 'lazy'\nmax_interval = 16\nlazy_layers = '0.5'",
          "scheme = 'k_step'\nperiod = 4", "scheme = 'k_step'\nperiod = 4\noverlap_steps = 2",
          "scheme = 'k_step'\nperiod = 4\noptimizer_state = 'average'",
          "scheme = 'hierarchical'\nlocal_period = 2\nperiod = 4",
          "scheme = 'hierarchical'\nlocal_period = 2\nperiod = 4\noverlap_steps = 2",
          "scheme = 'hierarchical'\nlocal_period = 2\nperiod = 8\ngroup = 2",
          "scheme = 'cyclic'\ndelay = 'fixed'", "scheme = 'cyclic'"}) {
      scheme(plain, keys);
    }
  }

 private:
  [[nodiscard]] bool speaks() const { return world_.rank() == 0; }
  [[nodiscard]] std::int64_t samples() const {
    return (global_batch + world_.size() - 1) / world_.size();
  }

  // Measures everything anew: links and the slowdown by all ranks, then whole steps of `samples()`
  // samples, and of up to `most_samples`, on rank 0.
  std::unique_ptr<Costs> costs_of(const Model& model, std::int64_t most_samples) {
    auto costs = std::make_unique<Costs>();
    costs->world = measure_world(world_);
    costs->world.slowdown = measure_slowdown(
        world_, *make_slowdown_step(model, samples(), 1, tensor::DataType::f32), 1);
    if (speaks()) costs->table.measure_step(model, samples(), most_samples);
    world_.communicator().barrier().wait();
    return costs;
  }

  /// `predict` is asked on rank 0 for each measurement of costs, after the run of its round.
  template <typename Measure, typename Run, typename Predict>
  Rounds rounds(const Measure& measure, const Run& run, const Predict& predict) {
    Rounds rounds;
    auto before = measure();
    for (std::int64_t round = 0; round < setting_.rounds; ++round) {
      rounds.measured.push_back(run());
      auto behind = measure();
      if (speaks()) rounds.predicted.push_back((predict(*before) + predict(*behind)) / 2.0);
      before = std::move(behind);
    }
    return rounds;
  }

  [[nodiscard]] PlanOptions options_of(const Experiment& experiment,
                                       const WorldCosts& costs) const {
    return {.ranks = world_.size(),
            .batch = experiment.train.global_batch,
            .fabric = costs.fabric,
            .node = costs.node,
            .optimizer_elements = 1,
            .bucket_bytes = experiment.update.bucket_bytes,
            .slowdown = costs.slowdown};
  }

  // The best splits on each grid.
  std::vector<BestPlan> plans_of(const Model& model, const Experiment& experiment) {
    const std::unique_ptr<Costs> costs = costs_of(model, global_batch);
    std::vector<BestPlan> plans;
    if (speaks()) {
      const PlanOptions options = options_of(experiment, costs->world);
      plans = measured_best_plans(model, options, costs->table, most_measurements);
      for (const BestPlan& plan : plans) {
        for (const LocalWork& work : work_of(model, options, plan)) costs->table.measure(work);
      }
      plans = best_plans(model, options, costs->table);
      std::erase_if(plans, [](const BestPlan& plan) { return !plan.refused.empty(); });
    }
    plans.resize(of_first_rank(world_, plans.size()));
    return plans;
  }

  void all_grids(const std::string& network) {
    const Experiment experiment = experiment_of(network, setting_.steps);
    const Model model = model_of(experiment);
    std::vector<double> measured;
    for (const BestPlan& plan : plans_of(model, experiment)) {
      measured.push_back(grid(network, experiment, plan));
    }
    if (!speaks()) return;
    const double best = *std::ranges::min_element(measured);
    std::printf("%-10s %5d auto takes %.1f %% longer than the fastest\n", network.c_str(),
                world_.size(), 100.0 * (measured.front() / best - 1.0));
  }

  // The median of what was measured.
  double grid(const std::string& network, const Experiment& experiment, const BestPlan& plan) {
    const Model model = model_of(experiment);
    Experiment own = experiment;
    if (speaks()) own.grid = grid_keys(plan);
    own = shared(own);
    const std::vector<LocalWork> work =
        speaks() ? work_of(model, options_of(experiment, {}), plan) : std::vector<LocalWork>();
    const auto measure = [&] {
      std::unique_ptr<Costs> costs = costs_of(model, global_batch);
      for (const LocalWork& each : work) costs->table.measure(each);
      world_.communicator().barrier().wait();
      return costs;
    };
    const auto run = [&] { return median_step(step_ends(world_, own)); };
    const auto predict = [&](const Costs& costs) {
      return grid_seconds(model, options_of(experiment, costs.world), plan.grid,
                          CostsOfPlan(costs.table, work));
    };
    const Rounds all = rounds(measure, run, predict);
    if (speaks()) {
      all.print(network.c_str(), world_.size(),
                std::to_string(plan.grid.pr) + " x " + std::to_string(plan.grid.pc));
    }
    return median(all.measured);
  }

  static double grid_seconds(const Model& model, const PlanOptions& options, ProcessGrid grid,
                             const CostsOfPlan& costs) {
    const std::vector<BestPlan> plans = best_plans(model, options, costs);
    const auto plan =
        std::ranges::find(plans, grid.pr, [](const BestPlan& each) { return each.grid.pr; });
    return plan->overlapped_seconds + agreement_seconds(options);
  }

  /// Rank 0's experiment.
  Experiment shared(const Experiment& mine) {
    const std::string text = to_toml(mine);
    const auto size = of_first_rank(world_, text.size());
    std::vector<std::uint8_t> all(size);
    std::ranges::copy_n(text.begin(), static_cast<std::ptrdiff_t>(std::min(size, text.size())),
                        all.begin());
    world_.communicator().broadcast(std::span(all), 0).wait();
    return parse_experiment(std::string(all.begin(), all.end()), "rank 0's");
  }

  void scheme(const Experiment& plain, const std::string& keys) {
    Experiment experiment = parse_experiment(
        to_toml(plain).substr(0, to_toml(plain).find("[update]")) + "[update]\n" + keys + "\n",
        "predicted-steps");
    experiment.update.warmup_epochs = 0.0;
    const Model model = model_of(experiment);
    const std::filesystem::path folder =
        std::filesystem::temp_directory_path() / ("predicted-steps-" + std::to_string(::getpid()));
    const auto run = [&] {
      if (speaks()) {
        std::filesystem::remove_all(folder);
        std::filesystem::create_directories(folder);
      }
      world_.communicator().barrier().wait();
      return mean_step(step_ends(world_, experiment, folder));
    };
    const Rounds all = rounds(
        [&] { return costs_of(model, samples()); }, run,
        [&](const Costs& costs) { return scheme_seconds(experiment, model, costs, folder); });
    if (!speaks()) return;
    std::string how = keys;
    std::ranges::replace(how, '\n', ' ');
    all.print("resnet20", world_.size(), how);
    std::filesystem::remove_all(folder);
  }

  // Takes the mean of the last run's windows, behind the steps that are left out.
  [[nodiscard]] double scheme_seconds(const Experiment& experiment, const Model& model,
                                      const Costs& costs,
                                      const std::filesystem::path& folder) const {
    ScalingOptions options{.first = world_.size(),
                           .last = world_.size(),
                           .fixed = FixedBatch::global,
                           .job = options_of(experiment, costs.world)};
    const sync::SchemeDescription& scheme = scheme_of(experiment.update);
    if (scheme.windows) options.tau = mean_window(folder / "metrics.jsonl", setting_.steps / 4);
    const double step =
        predict_scaling(model, experiment.update, options, costs.table).front().step_seconds;
    if (scheme.steps_alone()) return step;
    return step + agreement_seconds(options.job);
  }

  transport::World& world_;
  const Setting& setting_;
};

void measure(const std::string& what, const Setting& setting, int ranks) {
  transport::WorldOptions options;
  options.deadline = std::chrono::hours(1);  // while rank 0 measures kernels
  options.fabric = {
      .name = "shm",
      .fake_nodes = ranks,
      .injected_latency = std::chrono::nanoseconds(std::llround(setting.latency_us * 1e3)),
      .injected_bytes_per_second = setting.megabytes_per_second * 1e6};
  std::vector<std::jthread> threads;
  for (transport::World& world : transport::World::make_threads(ranks, options)) {
    threads.emplace_back([&, mine = std::move(world)]() mutable {
      try {
        Rank rank(mine, setting);
        what == "grids" ? rank.grids() : rank.schemes();
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", mine.rank(), error.what());
        std::_Exit(1);  // the others wait for this one
      }
    });
  }
}

/// The number of "NAME=NUMBER"; none of another name.
std::optional<std::int64_t> named(const std::string& text, const std::string& name) {
  if (!text.starts_with(name + "=")) return std::nullopt;
  return std::atoll(text.c_str() + name.size() + 1);
}

/// Named numbers may stand anywhere behind the first word; the others keep their order.
Setting setting_of(const std::vector<std::string>& given) {
  Setting setting;
  setting.steps = !given.empty() && given.front() == "schemes" ? scheme_steps : grid_steps;
  std::vector<double> numbers;
  for (std::size_t i = 1; i < given.size(); ++i) {
    if (const auto rounds = named(given[i], "rounds")) {
      setting.rounds = *rounds;
    } else if (const auto steps = named(given[i], "steps")) {
      setting.steps = *steps;
    } else {
      numbers.push_back(std::strtod(given[i].c_str(), nullptr));
    }
  }
  if (numbers.size() > 1) {
    setting.latency_us = numbers[0];
    setting.megabytes_per_second = numbers[1];
  }
  for (std::size_t i = 2; i < numbers.size(); ++i) {
    setting.ranks.push_back(static_cast<int>(numbers[i]));
  }
  if (setting.ranks.empty()) setting.ranks = {2, 4, 8};
  return setting;
}

bool is_possible(const std::string& what, const Setting& setting) {
  const std::int64_t unit = what == "schemes" ? scheme_steps : 4;
  return setting.steps >= 2 * 4 && setting.steps % unit == 0 && setting.steps < steps_of_epoch &&
         setting.rounds >= 1 && setting.megabytes_per_second > 0 &&
         std::ranges::all_of(setting.ranks, [](int each) { return each >= 1; });
}

}  // namespace

int main(int count, char** arguments) {
  const std::vector<std::string> given(arguments + 1, arguments + count);
  const std::string what = given.empty() ? "" : given.front();
  const Setting setting = setting_of(given);
  if ((what != "grids" && what != "schemes") || !is_possible(what, setting)) {
    std::fprintf(stderr,
                 "usage: predicted-steps grids|schemes [rounds=R] [steps=N] [LATENCY_US "
                 "MEGABYTES_PER_S [RANKS...]]; steps below %d, at least 8 and a multiple of 4, of "
                 "schemes a multiple of %d\n",
                 static_cast<int>(steps_of_epoch), static_cast<int>(scheme_steps));
    return 2;
  }
  print_title(setting);
  for (const int each : setting.ranks) measure(what, setting, each);
  return 0;
}

// What a training step takes, beside what the planner predicts:
//   predicted-steps grids|schemes [steps=N] [LATENCY_US MEGABYTES_PER_S [RANKS...]]
//                                                               default: steps=24 1000 12 2 4 8
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
// A row is one run. Measured is the median step, of schemes the mean, behind the first quarter of
// the steps: three quarters of `steps` should be a multiple of the periods. The error is that of
// the predicted step. Kernels are measured anew for each network, or each scheme: the speed of a
// shared machine changes.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <optional>
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

#include "config/combinations.hpp"
#include "plan/closed_forms.hpp"
#include "plan/world_costs.hpp"

namespace {

using namespace rondo;
using namespace rondo::train;
using Clock = std::chrono::steady_clock;

constexpr int most_measurements = 200;
constexpr int least_steps = 8;  // of which a quarter is left out
constexpr std::int64_t global_batch = 32;

struct Setting {
  std::int64_t steps = 24;
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

double median_step(const std::vector<double>& ends) {
  std::vector<double> steps;
  for (std::size_t i = ends.size() / 4; i + 1 < ends.size(); ++i)
    steps.push_back(ends[i + 1] - ends[i]);
  const auto middle = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
  std::ranges::nth_element(steps, middle);
  return *middle;
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
  std::printf("%g us, %g MB/s, %lld steps\n%-10s %5s %-70s %10s %10s %8s %12s %12s\n",
              setting.latency_us, setting.megabytes_per_second,
              static_cast<long long>(setting.steps), "network", "ranks", "grid or scheme",
              "predicted", "measured, ms", "error", "predicted", "measured, images/s");
}

void print(const char* what, int ranks, const std::string& how, double predicted, double measured) {
  constexpr double images = global_batch;
  std::printf("%-10s %5d %-70s %10.2f %10.2f %+6.1f %% %12.1f %12.1f\n", what, ranks, how.c_str(),
              1e3 * predicted, 1e3 * measured, 100.0 * (predicted / measured - 1.0),
              images / predicted, images / measured);
  std::fflush(stdout);
}

/// One rank of the measurements.
class Rank {
 public:
  Rank(transport::World& world, std::int64_t steps)
      : world_(world), steps_(steps), costs_(measure_world(world)) {}

  void grids() {
    for (const char* network : {"lenet5", "vgg5", "resnet20"}) all_grids(network);
  }

  void schemes() {
    const Experiment plain = experiment_of("resnet20", steps_);
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

  [[nodiscard]] PlanOptions options_of(const Experiment& experiment) const {
    return {.ranks = world_.size(),
            .batch = experiment.train.global_batch,
            .fabric = costs_.fabric,
            .node = costs_.node,
            .optimizer_elements = 1,
            .bucket_bytes = experiment.update.bucket_bytes,
            .slowdown = costs_.slowdown};
  }

  void measure_neighbours(const Model& model) {
    const std::int64_t samples = (global_batch + world_.size() - 1) / world_.size();
    costs_.slowdown = measure_slowdown(world_, model, samples, 1, tensor::DataType::f32);
  }

  void all_grids(const std::string& network) {
    const Experiment experiment = experiment_of(network, steps_);
    const Model model = model_of(experiment);
    measure_neighbours(model);
    const PlanOptions options = options_of(experiment);
    ComputeTable table(1);
    std::vector<BestPlan> plans;
    if (speaks()) {
      plans = measured_best_plans(model, options, table, most_measurements);
      for (const BestPlan& plan : plans) {
        for (const LocalWork& work : work_of(model, options, plan)) table.measure(work);
      }
      plans = best_plans(model, options, table);
      std::erase_if(plans, [](const BestPlan& plan) { return !plan.refused.empty(); });
    }
    const auto count = of_first_rank(world_, plans.size());
    std::vector<double> measured;
    for (std::size_t i = 0; i < count; ++i) {
      Experiment run = experiment;
      if (speaks()) run.grid = grid_keys(plans[i]);
      run = shared(run);
      measured.push_back(median_step(step_ends(world_, run)));
      if (!speaks()) continue;
      const BestPlan& plan = plans[i];
      const double update = table.update_seconds(layout_of(model).parameter_count /
                                                 static_cast<std::size_t>(plan.grid.pr));
      print(network.c_str(), world_.size(),
            std::to_string(plan.grid.pr) + " x " + std::to_string(plan.grid.pc),
            plan.overlapped_seconds + costs_.slowdown * update + agreement_seconds(options),
            measured.back());
    }
    if (!speaks()) return;
    const double best = *std::ranges::min_element(measured);
    std::printf("%-10s %5d auto takes %.1f %% longer than the fastest\n", network.c_str(),
                world_.size(), 100.0 * (measured.front() / best - 1.0));
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
    const std::filesystem::path folder =
        std::filesystem::temp_directory_path() / ("predicted-steps-" + std::to_string(::getpid()));
    if (speaks()) std::filesystem::create_directories(folder);
    const Model model = model_of(experiment);
    measure_neighbours(model);
    const double measured = mean_step(step_ends(world_, experiment, folder));
    if (speaks()) {
      ScalingOptions options{.first = world_.size(),
                             .last = world_.size(),
                             .fixed = FixedBatch::global,
                             .batch = experiment.train.global_batch,
                             .fabric = costs_.fabric,
                             .node = costs_.node,
                             .optimizer_elements = 1,
                             .slowdown = costs_.slowdown};
      if (scheme_of(experiment.update).windows) {
        options.tau = mean_window(folder / "metrics.jsonl");
      }
      ComputeTable table(1);
      for (const std::int64_t samples : samples_of_ranks(options)) {
        table.measure_step(model, samples, samples);
      }
      double predicted =
          predict_scaling(model, experiment.update, options, table).front().step_seconds;
      if (!scheme_of(experiment.update).steps_alone()) {
        predicted += agreement_seconds(options_of(experiment));
      }
      std::string how = keys;
      std::ranges::replace(how, '\n', ' ');
      print("resnet20", world_.size(), how, predicted, measured);
      std::filesystem::remove_all(folder);
    }
  }

  transport::World& world_;
  std::int64_t steps_;
  WorldCosts costs_;
};

void measure(const std::string& what, const Setting& setting, int ranks) {
  transport::WorldOptions options;
  options.fabric = {
      .name = "shm",
      .fake_nodes = ranks,
      .injected_latency = std::chrono::nanoseconds(std::llround(setting.latency_us * 1e3)),
      .injected_bytes_per_second = setting.megabytes_per_second * 1e6};
  std::vector<std::jthread> threads;
  for (transport::World& world : transport::World::make_threads(ranks, options)) {
    threads.emplace_back([&, mine = std::move(world)]() mutable {
      try {
        Rank rank(mine, setting.steps);
        what == "grids" ? rank.grids() : rank.schemes();
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", mine.rank(), error.what());
        std::_Exit(1);  // the others wait for this one
      }
    });
  }
}

/// "steps=N" may stand anywhere behind the first word; the numbers keep their order.
Setting setting_of(const std::vector<std::string>& given) {
  const std::string steps = "steps=";
  Setting setting;
  std::vector<double> numbers;
  for (std::size_t i = 1; i < given.size(); ++i) {
    if (given[i].starts_with(steps)) {
      setting.steps = std::atoi(given[i].c_str() + steps.size());
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

bool is_possible(const Setting& setting) {
  return setting.steps >= least_steps && setting.megabytes_per_second > 0 &&
         std::ranges::all_of(setting.ranks, [](int each) { return each >= 1; });
}

}  // namespace

int main(int count, char** arguments) {
  const std::vector<std::string> given(arguments + 1, arguments + count);
  const std::string what = given.empty() ? "" : given.front();
  const Setting setting = setting_of(given);
  if ((what != "grids" && what != "schemes") || !is_possible(setting)) {
    std::fprintf(stderr,
                 "usage: predicted-steps grids|schemes [steps=N] [LATENCY_US MEGABYTES_PER_S "
                 "[RANKS...]]; at least %d steps\n",
                 least_steps);
    return 2;
  }
  print_title(setting);
  for (const int each : setting.ranks) measure(what, setting, each);
  return 0;
}

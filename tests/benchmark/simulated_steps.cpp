// A synchronous training step on many ranks, simulated, beside what the planner's closed forms say
// (see support/simulated_grid_step.hpp and support/simulated_grid_work.hpp):
//
//   simulated-steps MODEL... [grid=SPLIT...] [NAME=VALUE...]
//     batch          samples of each rank (64)
//     gflops         at which a rank computes (200): convolutions and fully connected layers
//     latency-us     between nodes, one way of a short message (5)
//     gbs            of a node's port (12)
//     memory-gbs     of a node, for reading and writing (60)
//     segment-kib    the longest message (512)
//     jitter         of computing: rank r takes up to 1 + jitter times as long, in each step the
//                    same, by a hash of r (0.1)
//     most-ranks     (4096)
//     ranks-per-node with a grid; 0: the ranks of a replica (1)
//
// Without a grid, ranks are placed 1, 8 and 64 on a node. With SPLITs as [grid.layers] names them
// ('grid=channel=2 filter=2') convolutions are split so, where the planner knows them so, the other
// layers as it likes; replicas are 1, 4, 16 and 64.
//
// A row is the time of a step on so many ranks: by the closed form; simulated; their ratio; and
// simulated with jitter and with one rank that computes half as fast.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <rondo/sync/replica.hpp>
#include <rondo/train/compute_costs.hpp>
#include <rondo/train/experiment.hpp>
#include <rondo/train/scaling.hpp>

#include "base/reductions.hpp"
#include "config/grid_choice.hpp"
#include "plan/backward.hpp"
#include "plan/grid_job.hpp"
#include "plan/step_timeline.hpp"
#include "support/simulated_grid_work.hpp"

namespace {

using namespace rondo;
using test::SimulatedCosts;
using test::SimulatedPhase;
using Settings = std::map<std::string, double>;

Settings defaults() {
  return {{"batch", 64.0}, {"gflops", 200.0},      {"latency-us", 5.0},
          {"gbs", 12.0},   {"memory-gbs", 60.0},   {"segment-kib", 512.0},
          {"jitter", 0.1}, {"most-ranks", 4096.0}, {"ranks-per-node", 1.0}};
}

// As the runtime cuts them.
std::vector<sync::Bucket> buckets_of(const train::Backward& backward, std::int64_t bytes) {
  std::vector<sync::Layer> layers;
  std::size_t offset = 0;
  for (const train::FinalGradients& block : backward.blocks) {
    layers.push_back({.offset = offset, .size = block.elements});
    offset += block.elements;
  }
  return sync::plan_buckets(layers, sync::BucketLimits::of(static_cast<std::size_t>(bytes)));
}

// Ranks split samples: each phase computes until a bucket is final, which all ranks reduce.
std::vector<SimulatedPhase> phases_of(const train::Backward& backward, std::int64_t bucket_bytes,
                                      std::size_t ranks) {
  std::vector<SimulatedPhase> phases;
  double done = 0.0;
  for (const sync::Bucket& bucket : buckets_of(backward, bucket_bytes)) {
    const double is_final = backward.blocks[bucket.first_layer].seconds;
    phases.push_back(
        {.seconds = is_final - done,
         .reduction = test::SimulatedExchange{.kind = test::SimulatedExchange::Kind::allreduce,
                                              .groups = {.size = ranks},
                                              .bytes = {bucket.size * sizeof(float)}}});
    done = is_final;
  }
  phases.push_back({.seconds = backward.end - done});
  return phases;
}

/// Between 0 and 1, the same for a rank in every run.
double hash_of(std::size_t rank) {
  std::uint64_t bits = (rank + 1) * 0x9E3779B97F4A7C15U;
  bits = (bits ^ (bits >> 30U)) * 0xBF58476D1CE4E5B9U;
  bits ^= bits >> 31U;
  return static_cast<double>(bits >> 11U) * 0x1p-53;
}

/// The mean of the steps behind the first, which begins on all ranks at once.
double mean_step(const std::vector<double>& ends) {
  return (ends.back() - ends.front()) / static_cast<double>(ends.size() - 1);
}

constexpr std::size_t simulated_steps = 3;

class Referee {
 public:
  Referee(const std::string& name, const Settings& settings)
      : settings_(settings),
        experiment_(train::parse_experiment(
            "[data]\nname = 'synthetic'\n[model]\nname = '" + name + "'\n", "simulated-steps")),
        model_(train::make_model(name, shape_of(name), classes_of(name))),
        rate_(settings.at("gflops") * 1e9),
        backward_(train::backward_of(model_, batch(), rate_)) {}

  void judge(std::size_t ranks, std::size_t ranks_per_node) {
    const SimulatedCosts costs = costs_of(ranks_per_node);
    std::size_t parameters = 0;
    for (const train::FinalGradients& block : backward_.blocks) parameters += block.elements;
    const std::vector<SimulatedPhase> phases =
        phases_of(backward_, experiment_.update.bucket_bytes, ranks);
    report(ranks, std::to_string(ranks_per_node), closed_form(ranks, ranks_per_node), costs, phases,
           rate_.update_seconds(parameters));
  }

  void judge_grid(const train::LayerSplit& split, int replicas) {
    const train::ProcessGrid grid{.pr = split.ranks(), .pc = replicas};
    const auto asked = static_cast<int>(settings_.at("ranks-per-node"));
    const int on_a_node = asked > 0 ? asked : grid.pr;
    if (grid.ranks() % on_a_node != 0) return;
    const double port = settings_.at("gbs") * 1e9;
    const train::PlanOptions options{
        .ranks = grid.ranks(),
        .batch = batch() * grid.ranks(),
        .fabric = {.alpha_seconds = settings_.at("latency-us") * 1e-6, .bandwidth = port},
        .node = node_link(on_a_node),
        .ranks_per_node = on_a_node,
        .port_bandwidth = port,
        .bucket_bytes = experiment_.update.bucket_bytes};
    const train::GridJob job{.model = model_,
                             .options = options,
                             .grid = grid,
                             .shapes = train::shapes_of(model_, options.batch)};
    const train::FoundLayouts found = test::layouts_with(job, split, rate_);
    report(static_cast<std::size_t>(grid.ranks()), train::to_text(split),
           train::bucketed_seconds(job, found), costs_of(static_cast<std::size_t>(on_a_node)),
           test::phases_of(job, found), 0.0);
  }

 private:
  void report(std::size_t ranks, const std::string& how, double predicted,
              const SimulatedCosts& costs, const std::vector<SimulatedPhase>& phases,
              double update_seconds) const {
    std::vector<double> slowness(ranks, 1.0);
    const auto simulate = [&](const std::vector<double>& speeds) {
      return test::simulate_grid_steps(ranks, costs, segment_bytes(), phases, update_seconds,
                                       speeds, simulated_steps);
    };
    const double simulated = mean_step(simulate(slowness));
    for (std::size_t r = 0; r < ranks; ++r) slowness[r] += settings_.at("jitter") * hash_of(r);
    const double jittered = mean_step(simulate(slowness));
    std::ranges::fill(slowness, 1.0);
    slowness[ranks / 2] = 2.0;
    const double slowed = mean_step(simulate(slowness));
    std::printf("%-12s %6zu %-18s %10.2f %10.2f %6.2f %10.2f %10.2f\n", model_.name.c_str(), ranks,
                how.c_str(), 1e3 * predicted, 1e3 * simulated, simulated / predicted,
                1e3 * jittered, 1e3 * slowed);
    std::fflush(stdout);
  }

  // CIFAR's images for the networks that were made for them, ImageNet's for the others.
  [[nodiscard]] static bool is_small(const std::string& name) {
    return name == "resnet8" || name == "resnet20" || name == "lenet5";
  }
  [[nodiscard]] static tensor::Shape shape_of(const std::string& name) {
    const std::int64_t side = is_small(name) ? 32 : 224;
    return {.n = 1, .h = side, .w = side, .c = 3};
  }
  [[nodiscard]] static std::int64_t classes_of(const std::string& name) {
    return is_small(name) ? 10 : 1000;
  }

  [[nodiscard]] std::int64_t batch() const {
    return static_cast<std::int64_t>(settings_.at("batch"));
  }
  [[nodiscard]] std::size_t segment_bytes() const {
    return static_cast<std::size_t>(settings_.at("segment-kib") * 1024.0);
  }
  [[nodiscard]] SimulatedCosts costs_of(std::size_t ranks_per_node) const {
    return {.ranks_per_node = ranks_per_node,
            .between_nodes = {.latency = settings_.at("latency-us") * 1e-6,
                              .per_byte = 1e-9 / settings_.at("gbs")},
            .inside_node = {.latency = 1e-7},
            .memory_per_byte = 1e-9 / settings_.at("memory-gbs")};
  }

  // The ranks of a node share its memory, which a copy reads and writes.
  [[nodiscard]] train::LinkCost node_link(double ranks_per_node) const {
    return {.alpha_seconds = 2e-7,
            .bandwidth = settings_.at("memory-gbs") * 1e9 / (2.0 * ranks_per_node)};
  }

  [[nodiscard]] double closed_form(std::size_t ranks, std::size_t ranks_per_node) const {
    const double port = settings_.at("gbs") * 1e9;
    const train::ScalingOptions options{
        .first = static_cast<int>(ranks),
        .last = static_cast<int>(ranks),
        .job = {.batch = batch(),
                .fabric = {.alpha_seconds = settings_.at("latency-us") * 1e-6, .bandwidth = port},
                .node = node_link(static_cast<double>(ranks_per_node)),
                .ranks_per_node = static_cast<int>(ranks_per_node),
                .port_bandwidth = port}};
    return train::predict_scaling(model_, experiment_.update, options, rate_).front().step_seconds;
  }

  Settings settings_;
  train::Experiment experiment_;
  train::Model model_;
  train::FlopRate rate_;
  train::Backward backward_;
};

void read_setting(const std::string& word, Settings& settings) {
  const std::size_t equal = word.find('=');
  const auto found = settings.find(word.substr(0, equal));
  if (found == settings.end()) throw std::invalid_argument("there is no setting " + word);
  found->second = std::stod(word.substr(equal + 1));
  if (!(found->second >= 0.0)) throw std::invalid_argument(word + " is below 0");
}

void judge_nodes(Referee& referee, double most_ranks) {
  for (const std::size_t ranks_per_node : {1U, 8U, 64U}) {
    for (const std::size_t ranks : {2U, 8U, 64U, 512U, 4096U}) {
      // Rings of 4,096 nodes are 33 million messages for each bucket.
      const bool fits = ranks % ranks_per_node == 0 && ranks / ranks_per_node <= 512;
      if (fits && static_cast<double>(ranks) <= most_ranks) referee.judge(ranks, ranks_per_node);
    }
  }
}

void judge_grids(Referee& referee, const std::vector<train::LayerSplit>& grids, double most_ranks) {
  for (const train::LayerSplit& split : grids) {
    for (const int replicas : {1, 4, 16, 64}) {
      const int ranks = replicas * split.ranks();
      if (ranks > 1 && ranks <= most_ranks) referee.judge_grid(split, replicas);
    }
  }
}

int run(const std::vector<std::string>& words) {
  Settings settings = defaults();
  std::vector<std::string> models;
  std::vector<train::LayerSplit> grids;
  for (const std::string& word : words) {
    if (word.starts_with("grid=")) {
      grids.push_back(train::read_split(word.substr(std::strlen("grid="))));
    } else if (word.find('=') == std::string::npos) {
      models.push_back(word);
    } else {
      read_setting(word, settings);
    }
  }
  if (models.empty()) {
    throw std::invalid_argument("write: simulated-steps MODEL... [grid=SPLIT...] [NAME=VALUE...]");
  }
  std::printf("#");
  for (const auto& [name, value] : settings) std::printf(" %s=%g", name.c_str(), value);
  std::printf("\n%-12s %6s %-18s %10s %10s %6s %10s %10s\n", "model", "ranks",
              grids.empty() ? "per node" : "grid", "planner ms", "step ms", "ratio", "jitter ms",
              "1 slow ms");
  for (const std::string& model : models) {
    Referee referee(model, settings);
    if (grids.empty()) {
      judge_nodes(referee, settings.at("most-ranks"));
    } else {
      judge_grids(referee, grids, settings.at("most-ranks"));
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "simulated-steps: %s\n", error.what());
    return 1;
  }
}

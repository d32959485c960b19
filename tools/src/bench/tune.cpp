// `rondo bench tune`: what messages cost inside and between nodes, and which allreduce is best for
// which size.
//
// A World's algorithms are fixed when it is made, so each algorithm is measured in a World of its
// own: the ranks connect again, at another port. Functions that measure nothing compute what
// follows from the measured times: the line that messages follow, and the sizes at which one
// algorithm becomes faster than another.

#include "bench/tune.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/team.hpp>
#include <rondo/transport/world.hpp>

#include "bench/measure.hpp"
#include "failure.hpp"
#include "launch/joined_rank.hpp"
#include "launch/launcher.hpp"
#include "options.hpp"
#include "world.hpp"

namespace rondo::tools {
namespace {

// The index of the algorithm for each size: never decreasing, with the least sum of logarithms.
std::vector<std::size_t> choose(std::size_t sizes, const std::vector<AlgorithmTimes>& algorithms) {
  const std::size_t count = algorithms.size();
  // cost[a]: of the sizes so far, the last of which has an algorithm up to a.
  std::vector<double> cost(count, 0.0);
  std::vector<std::vector<std::size_t>> last(sizes, std::vector<std::size_t>(count));
  for (std::size_t s = 0; s < sizes; ++s) {
    double least = std::numeric_limits<double>::infinity();
    std::size_t best = 0;
    for (std::size_t a = 0; a < count; ++a) {
      // Logarithms, so that a factor counts the same at small and at large sizes: what matters is
      // how many times slower than the best a table is.
      const double here = cost[a] + std::log(algorithms[a].microseconds.at(s));
      if (here < least) {
        least = here;
        best = a;
      }
      cost[a] = least;
      last[s][a] = best;
    }
  }
  std::vector<std::size_t> chosen(sizes);
  std::size_t most = count - 1;
  for (std::size_t s = sizes; s-- > 0;) {
    chosen[s] = last[s][most];
    // An algorithm that has been left for a later one does not come back at larger sizes.
    most = chosen[s];
  }
  return chosen;
}

// Sizes grow by factors, so the middle of two is their geometric mean.
std::size_t boundary(std::size_t below, std::size_t above) {
  return static_cast<std::size_t>(
      std::llround(std::sqrt(static_cast<double>(below) * static_cast<double>(above))));
}

using OrderedJson = nlohmann::ordered_json;

// The cost of messages of one level: between ranks of a node, or between nodes.
struct LevelCost {
  std::string level = {};  // "node" or "fabric"
  int first = 0;           // the ranks between which it was measured
  int second = 0;
  LineFit fit = {};
  std::vector<TimedSize> samples = {};  // one way; medians
};

// What was found out about a job's links. The same on all ranks.
struct Tuning {
  int ranks = 1;
  int nodes = 1;
  std::string route = {};
  std::string injected = {};            // delays that were injected into links; may be empty
  std::vector<LevelCost> levels = {};   // those that the job has
  std::vector<std::size_t> sizes = {};  // bytes that were reduced
  std::vector<AlgorithmTimes> times = {};
  std::string table = {};  // the best; empty on one node, where there is nothing to choose
};

// Makes a World whose allreduce between nodes follows `table`. Collective.
using OpenWorld = std::function<transport::World(const std::string& table)>;

// In the order in which they are good for ever larger sizes. Flat ones differ from the others only
// where a node has several ranks.
std::vector<const char*> measured_algorithms(const Tuning& tuning) {
  if (tuning.ranks == tuning.nodes) return {"rd", "rh", "ring"};
  return {"flat-rd", "rd", "flat-rh", "rh", "ring", "flat-ring"};
}

// In the arena: that is where training has its buffers. The bench of `rondo bench` itself: a tuning
// measures nothing in its own way.
std::vector<BenchRow> medians(transport::World& world, Bench bench, const char* sizes,
                              int iterations) {
  bench.sizes = byte_sizes(sizes);
  bench.memories = {BenchMemory::arena};
  bench.iterations = iterations;
  return measure(world, bench);
}

// The first two ranks on the same node, or on different ones.
std::optional<std::pair<int, int>> pair_of(const transport::World& world, bool same_node) {
  const auto ranks = world.ranks();
  for (int first = 0; first < world.size(); ++first) {
    for (int second = first + 1; second < world.size(); ++second) {
      const bool same = ranks[static_cast<std::size_t>(first)].node ==
                        ranks[static_cast<std::size_t>(second)].node;
      if (same == same_node) return std::pair(first, second);
    }
  }
  return std::nullopt;
}

// Leaves the level out if the job has no two ranks on it.
void measure_level(transport::World& world, const char* level, int iterations, Tuning& tuning) {
  const auto pair = pair_of(world, level == std::string_view("node"));
  if (!pair) return;
  LevelCost cost{.level = level, .first = pair->first, .second = pair->second};
  Bench bench;
  bench.kind = &operation_kind("latency");
  bench.in_place = {false};
  bench.first = pair->first;
  bench.peer = pair->second;
  for (const BenchRow& row : medians(world, bench, "8:2M", iterations)) {
    cost.samples.push_back({.bytes = row.bytes, .seconds = row.time.median_us * 1e-6});
  }
  cost.fit = fit_line(cost.samples);
  tuning.levels.push_back(std::move(cost));
}

// All ranks reduce with one algorithm for all sizes. The sizes are the same for every algorithm, so
// the last one's stand for all.
void try_algorithm(transport::World& world, const char* algorithm, int iterations, Tuning& tuning) {
  Bench bench;
  bench.kind = &operation_kind("allreduce");
  bench.in_place = {true};
  AlgorithmTimes times{.algorithm = algorithm};
  tuning.sizes.clear();
  for (const BenchRow& row : medians(world, bench, "256:4M", iterations)) {
    tuning.sizes.push_back(row.bytes);
    times.microseconds.push_back(row.time.median_us);
  }
  tuning.times.push_back(std::move(times));
}

// Measures point-to-point messages on each level, then allreduce with each algorithm in a World of
// its own. `iterations` 0: as many as the sizes allow. Collective.
Tuning tune(const OpenWorld& open, int iterations) {
  Tuning tuning;
  std::optional<transport::World> world = open("");
  tuning.ranks = world->size();
  tuning.nodes = world->nodes();
  tuning.route = world->route();
  if (tuning.nodes > 1) tuning.injected = injected_delays();
  measure_level(*world, "node", iterations, tuning);
  measure_level(*world, "fabric", iterations, tuning);
  // On one node there is nothing to choose.
  if (tuning.nodes == 1) return tuning;
  for (const char* algorithm : measured_algorithms(tuning)) {
    // The old World has to agree on the next one's port before it ends.
    NextBootstrap next(*world);
    world.reset();
    next.prepare();
    world = open(std::string(algorithm) + ":0-max");
    try_algorithm(*world, algorithm, iterations, tuning);
  }
  // Rank 0's clock decides; times of others may differ in the last digit.
  tuning.table = broadcast_text(*world, best_table(tuning.sizes, tuning.times));
  return tuning;
}

// Alpha and beta of each level, with the samples that they were fitted to.
OrderedJson levels_of(const Tuning& tuning) {
  OrderedJson levels = OrderedJson::array();
  for (const LevelCost& cost : tuning.levels) {
    OrderedJson samples = OrderedJson::array();
    for (const TimedSize& sample : cost.samples) {
      samples.push_back({{"bytes", sample.bytes}, {"seconds", sample.seconds}});
    }
    levels.push_back({{"level", cost.level},
                      {"alpha_seconds", cost.fit.alpha_seconds},
                      {"beta_seconds_per_byte", cost.fit.beta_seconds_per_byte},
                      {"ranks", {cost.first, cost.second}},
                      {"samples", samples}});
  }
  return levels;
}

OrderedJson times_of(const Tuning& tuning) {
  OrderedJson times = OrderedJson::array();
  for (const AlgorithmTimes& algorithm : tuning.times) {
    for (std::size_t s = 0; s < tuning.sizes.size(); ++s) {
      times.push_back({{"algorithm", algorithm.algorithm},
                       {"bytes", tuning.sizes[s]},
                       {"seconds", algorithm.microseconds[s] * 1e-6}});
    }
  }
  return times;
}

// For people. The last line can be pasted into [transport] of a configuration.
std::string as_text(const Tuning& tuning) {
  std::string text;
  for (const LevelCost& cost : tuning.levels) {
    text += fmt::format("{:<8} alpha {:.3g} us, beta {:.3g} ns per KiB, between ranks {} and {}\n",
                        cost.level, cost.fit.alpha_seconds * 1e6,
                        cost.fit.beta_seconds_per_byte * 1024e9, cost.first, cost.second);
  }
  for (std::size_t s = 0; s < tuning.sizes.size(); ++s) {
    text += fmt::format("allreduce of {:>8} bytes:", tuning.sizes[s]);
    for (const AlgorithmTimes& algorithm : tuning.times) {
      text += fmt::format("  {} {:.2f} us", algorithm.algorithm, algorithm.microseconds[s]);
    }
    text += "\n";
  }
  text += tuning.table.empty() ? "allreduce: one node, nothing to choose\n"
                               : fmt::format("allreduce = \"{}\"\n", tuning.table);
  if (!tuning.injected.empty()) {
    text += fmt::format("with delays injected between nodes: {}\n", tuning.injected);
  }
  return text;
}

// For programs: one object, documented in docs/command-line.md.
std::string as_json(const Tuning& tuning) {
  const OrderedJson object = {{"format", 1},
                              {"ranks", tuning.ranks},
                              {"nodes", tuning.nodes},
                              {"route", tuning.route},
                              {"injected", tuning.injected},
                              {"levels", levels_of(tuning)},
                              {"allreduce", tuning.table},
                              {"allreduce_times", times_of(tuning)}};
  // The route has names of interfaces, which need not be UTF-8.
  return object.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

struct TuneOptions {
  LaunchRequest launch = {};
  Format format = Format::text;
  int iterations = 0;
};

// Every World of the tuning has the same options but for its table, and the threads that the first
// one has settled.
int tune_as_rank(const TuneOptions& options) {
  std::unique_ptr<transport::Team> team;
  bool has_joined = false;
  const Tuning tuning = tune(
      [&](const std::string& table) {
        transport::WorldOptions with_table = world_options();
        with_table.fabric.allreduce = table;
        if (has_joined) {
          with_table.team = team.get();
          return transport::World::attach(with_table);
        }
        JoinedRank self = join_as_rank(std::move(with_table), options.launch.placement);
        has_joined = true;
        team = std::move(self.team);
        return std::move(self.world);
      },
      options.iterations);
  if (rank_name() != "0") return exit_done;
  fmt::print("{}", options.format == Format::json ? as_json(tuning) : as_text(tuning));
  return exit_done;
}

}  // namespace

// Neighbouring sizes with the same algorithm become one entry.
std::string best_table(const std::vector<std::size_t>& sizes,
                       const std::vector<AlgorithmTimes>& algorithms) {
  if (sizes.empty() || algorithms.empty()) throw std::invalid_argument("there are no times");
  const std::vector<std::size_t> chosen = choose(sizes.size(), algorithms);
  std::string table;
  std::string from = "0";
  for (std::size_t s = 0; s < sizes.size(); ++s) {
    const bool ends = s + 1 == sizes.size();
    // Goes on until the algorithm changes, or the sizes end.
    if (!ends && chosen[s + 1] == chosen[s]) continue;
    const std::string to = ends ? "max" : short_size(boundary(sizes[s], sizes[s + 1]));
    table += fmt::format("{}{}:{}-{}", table.empty() ? "" : ";", algorithms[chosen[s]].algorithm,
                         from, to);
    from = to;
  }
  return table;
}

std::string short_size(std::size_t bytes) {
  constexpr std::size_t kibibyte = 1024;
  constexpr std::size_t mebibyte = kibibyte * kibibyte;
  if (bytes > 0 && bytes % mebibyte == 0) return fmt::format("{}m", bytes / mebibyte);
  if (bytes > 0 && bytes % kibibyte == 0) return fmt::format("{}k", bytes / kibibyte);
  return fmt::format("{}", bytes);
}

// Minimises the sum of ((t - alpha - beta n) / t)^2, with u = 1 / t and v = n / t.
LineFit fit_line(std::span<const TimedSize> samples) {
  double u = 0.0;
  double v = 0.0;
  double uu = 0.0;
  double uv = 0.0;
  double vv = 0.0;
  for (const TimedSize& sample : samples) {
    if (!(sample.seconds > 0.0)) throw std::invalid_argument("a time is not positive");
    const double inverse = 1.0 / sample.seconds;
    const double slope = static_cast<double>(sample.bytes) * inverse;
    u += inverse;
    v += slope;
    uu += inverse * inverse;
    uv += inverse * slope;
    vv += slope * slope;
  }
  // The normal equations of two unknowns, by Cramer's rule. Errors are relative to the times,
  // because absolute ones would let the largest messages decide alone.
  const double determinant = uu * vv - uv * uv;
  if (samples.size() < 2 || !(determinant > 0.0)) {
    throw std::invalid_argument("a line needs two sizes");
  }
  LineFit fit{.alpha_seconds = (u * vv - v * uv) / determinant,
              .beta_seconds_per_byte = (v * uu - u * uv) / determinant};
  // The best of those at the edge of what makes sense.
  if (fit.alpha_seconds < 0.0) fit = {.alpha_seconds = 0.0, .beta_seconds_per_byte = v / vv};
  if (fit.beta_seconds_per_byte < 0.0) fit = {.alpha_seconds = u / uu, .beta_seconds_per_byte = 0};
  return fit;
}

void add_bench_tune(Command& bench) {
  Command command = bench.add(
      "tune", "Measure what messages cost inside and between nodes, and choose algorithms");
  command.alias("--tune");
  auto options = std::make_shared<TuneOptions>();
  add_format_option(command, options->format, text_or_json, "text, or json: one object");
  command
      .option("--iterations I", options->iterations,
              fmt::format("Per size (default: {} to {})", most_iterations, least_iterations))
      .range(1, 1'000'000);
  add_placement_options(command, options->launch.placement, "2");
  add_fabric_options(command, options->launch.fabric);
  command.footer(
      R"(Two ranks unless -n says otherwise. The table is for [transport] allreduce in the
configuration, or --algorithms of bench allreduce.)");
  command.does([options](const CommandLine& line) {
    return launch_or_be_rank(line, options->launch, 2, [&] { return tune_as_rank(*options); });
  });
}

}  // namespace rondo::tools

#include "bench/tuning.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "bench/bench.hpp"
#include "bench/byte_sizes.hpp"
#include "bench/injected.hpp"
#include "launch/next_meeting.hpp"

namespace rondo::tools {
namespace {

// In the order in which they are good for ever larger sizes.
constexpr const char* algorithms[] = {"rd", "ring"};

const OperationKind& kind_of(std::string_view name) {
  return *std::ranges::find(operation_kinds(), name, &OperationKind::name);
}

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

void measure_level(transport::World& world, const char* level, int iterations, Tuning& tuning) {
  const auto pair = pair_of(world, level == std::string_view("node"));
  if (!pair) return;
  LevelCost cost{.level = level, .first = pair->first, .second = pair->second};
  Bench bench;
  bench.kind = &kind_of("latency");
  bench.in_place = {false};
  bench.first = pair->first;
  bench.peer = pair->second;
  for (const BenchRow& row : medians(world, bench, "8:2M", iterations)) {
    cost.samples.push_back({.bytes = row.bytes, .seconds = row.time.median_us * 1e-6});
  }
  cost.fit = fit_line(cost.samples);
  tuning.levels.push_back(std::move(cost));
}

void try_algorithm(transport::World& world, const char* algorithm, int iterations, Tuning& tuning) {
  Bench bench;
  bench.kind = &kind_of("allreduce");
  bench.in_place = {true};
  AlgorithmTimes times{.algorithm = algorithm};
  tuning.sizes.clear();
  for (const BenchRow& row : medians(world, bench, "256:4M", iterations)) {
    tuning.sizes.push_back(row.bytes);
    times.microseconds.push_back(row.time.median_us);
  }
  tuning.times.push_back(std::move(times));
}

// Rank 0's clock decides; times of others may differ in the last digit.
std::string agree(transport::World& world, const std::string& table) {
  std::vector<std::uint8_t> text(256, 0);
  std::copy_n(table.begin(), std::min(table.size(), text.size()), text.begin());
  world.communicator().broadcast(std::span(text), 0).wait();
  return {text.begin(), std::ranges::find(text, std::uint8_t{0})};
}

}  // namespace

Tuning tune(const OpenWorld& open, int iterations) {
  Tuning tuning;
  std::optional<transport::World> world = open("");
  tuning.ranks = world->size();
  tuning.nodes = world->nodes();
  tuning.route = world->route();
  if (tuning.nodes > 1) tuning.injected = injected_delays();
  measure_level(*world, "node", iterations, tuning);
  measure_level(*world, "fabric", iterations, tuning);
  if (tuning.nodes == 1) return tuning;
  for (const char* algorithm : algorithms) {
    const NextMeeting next(*world);
    world.reset();
    next.prepare();
    world = open(std::string(algorithm) + ":0-max");
    try_algorithm(*world, algorithm, iterations, tuning);
  }
  tuning.table = agree(*world, best_table(tuning.sizes, tuning.times));
  return tuning;
}

}  // namespace rondo::tools

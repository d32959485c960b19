// The measurements of a rank that the doctor has started: latency, bandwidth and clocks between
// pairs of ranks, and on one node a reduction beside one pass over shared memory.
//
// The measurements are those of `rondo bench`, with few iterations. Rank 0 writes what came out as
// one JSON object; what went wrong is an exception, which ends the rank with a line on stderr.

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "bench/measure.hpp"
#include "bench/operation.hpp"
#include "doctor/links.hpp"
#include "failure.hpp"
#include "world.hpp"

namespace rondo::tools {
namespace {

using Json = nlohmann::json;

// A link that does not work must say so soon; hosts may be slow to begin. Ranks wait 20 s for the
// first messages over the last network, and must still meet after that to tell why none came.
constexpr std::chrono::seconds deadline{5};
constexpr std::chrono::seconds bootstrap_deadline{25};

// More ranks than this are measured as neighbours, fewer as all pairs.
constexpr int most_ranks_in_pairs = 8;

// Faster links get larger messages.
constexpr double fast_gb_per_second = 0.5;

// One row of `rondo bench NAME` between two ranks.
BenchRow measure_pair(transport::World& world, std::string_view name, std::size_t bytes,
                      int iterations, std::pair<int, int> ranks) {
  return measure(world, {.kind = &operation_kind(name),
                         .sizes = {bytes},
                         .memories = {BenchMemory::arena},
                         .in_place = {false},
                         .iterations = iterations,
                         .warm_up = 1,
                         .first = ranks.first,
                         .peer = ranks.second})
      .front();
}

double measure_bandwidth(transport::World& world, std::pair<int, int> ranks) {
  constexpr std::size_t small = 64 * 1024;
  constexpr std::size_t large = 1024 * 1024;
  const BenchRow first = measure_pair(world, "bandwidth", small, 3, ranks);
  if (first.algorithm_gb_per_second() < fast_gb_per_second) {
    return 1e9 * first.algorithm_gb_per_second();
  }
  return 1e9 * measure_pair(world, "bandwidth", large, 3, ranks).algorithm_gb_per_second();
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The second rank's clock minus the first one's, as the first one sees it: its answer was written
// within the round trip, most likely in the middle. The shortest of several round trips counts.
void compare_clocks(transport::World& world, std::pair<int, int> ranks, PairTimes& pair) {
  constexpr int round_trips = 20;
  transport::Communicator& all = world.communicator();
  std::array<double, 1> value{};
  double shortest = std::numeric_limits<double>::infinity();
  for (int trip = 0; trip < round_trips; ++trip) {
    if (world.rank() == ranks.second) {
      all.recv(std::span<double>(value), ranks.first).wait();
      value[0] = wall_seconds();
      all.send(std::span<const double>(value), ranks.first).wait();
    } else if (world.rank() == ranks.first) {
      const double sent = wall_seconds();
      all.send(std::span<const double>(value), ranks.second).wait();
      all.recv(std::span<double>(value), ranks.second).wait();
      const double received = wall_seconds();
      if (received - sent >= shortest) continue;
      shortest = received - sent;
      pair.clock_seconds = value[0] - (sent + received) / 2;
      pair.clock_error_seconds = shortest / 2;
    }
  }
  // Rank 0 reports for all pairs.
  std::array<double, 2> result = {pair.clock_seconds, pair.clock_error_seconds};
  all.broadcast(std::span<double>(result), ranks.first).wait();
  pair.clock_seconds = result[0];
  pair.clock_error_seconds = result[1];
}

std::vector<std::pair<int, int>> pairs_of(int ranks) {
  std::vector<std::pair<int, int>> pairs;
  for (int first = 0; first < ranks; ++first) {
    for (int second = first + 1; second < ranks; ++second) {
      if (ranks > most_ranks_in_pairs && second > first + 1) break;
      pairs.emplace_back(first, second);
    }
  }
  return pairs;
}

Json describe(std::pair<int, int> ranks, const PairTimes& pair) {
  return {{"from", ranks.first},
          {"to", ranks.second},
          {"latency_us", pair.latency_us},
          {"bytes_per_second", pair.bytes_per_second},
          {"clock_seconds", pair.clock_seconds},
          {"clock_error_seconds", pair.clock_error_seconds}};
}

// An allreduce in place and one pass over the same memory, in turn.
Json measure_reduction(transport::World& world) {
  constexpr std::size_t bytes = 16 * 1024 * 1024;
  const BenchRow row = measure(world, {.kind = &operation_kind("allreduce"),
                                       .sizes = {bytes},
                                       .memories = {BenchMemory::arena},
                                       .in_place = {true},
                                       .iterations = 20,
                                       .warm_up = 1,
                                       .limit = true})
                           .front();
  return {{"bytes_per_second", 1e9 * row.algorithm_gb_per_second()},
          {"limit_bytes_per_second", 1e6 * static_cast<double>(row.bytes) / row.limit_us.value()},
          {"percent_of_limit", row.percent()}};
}

}  // namespace

int measure_links_as_rank() {
  let_speak(Speaker::first_of_host);
  transport::WorldOptions options = world_options();
  options.deadline = deadline;
  options.bootstrap_deadline = bootstrap_deadline;
  transport::World world = transport::World::attach(options);
  let_speak(Speaker::rank_0);
  Json report = {{"route", world.route()}, {"pairs", Json::array()}};
  for (const std::pair<int, int>& ranks : pairs_of(world.size())) {
    PairTimes pair;
    pair.latency_us = measure_pair(world, "latency", 8, 100, ranks).time.median_us;
    pair.bytes_per_second = measure_bandwidth(world, ranks);
    compare_clocks(world, ranks, pair);
    report["pairs"].push_back(describe(ranks, pair));
  }
  if (world.nodes() == 1) report["reduction"] = measure_reduction(world);
  // The route has names of interfaces, which need not be UTF-8.
  if (world.rank() == 0) {
    fmt::print("{}\n", report.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  return exit_done;
}

}  // namespace rondo::tools

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/tuning.hpp"

namespace rondo::tools {
namespace {

using Json = nlohmann::ordered_json;

Json levels_of(const Tuning& tuning) {
  Json levels = Json::array();
  for (const LevelCost& cost : tuning.levels) {
    Json samples = Json::array();
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

Json times_of(const Tuning& tuning) {
  Json times = Json::array();
  for (const AlgorithmTimes& algorithm : tuning.times) {
    for (std::size_t s = 0; s < tuning.sizes.size(); ++s) {
      times.push_back({{"algorithm", algorithm.algorithm},
                       {"bytes", tuning.sizes[s]},
                       {"seconds", algorithm.microseconds[s] * 1e-6}});
    }
  }
  return times;
}

}  // namespace

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

std::string as_json(const Tuning& tuning) {
  const Json object = {{"format", 1},
                       {"ranks", tuning.ranks},
                       {"nodes", tuning.nodes},
                       {"route", tuning.route},
                       {"injected", tuning.injected},
                       {"levels", levels_of(tuning)},
                       {"allreduce", tuning.table},
                       {"allreduce_times", times_of(tuning)}};
  return object.dump(2) + "\n";
}

}  // namespace rondo::tools

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/algorithm_table.hpp"
#include "bench/line_fit.hpp"

namespace rondo::transport {
class World;
}

namespace rondo::tools {

/// What messages of one level cost: between ranks of a node, or between nodes.
struct LevelCost {
  std::string level = {};  ///< "node" or "fabric"
  int first = 0;           ///< the ranks between which it was measured
  int second = 0;
  LineFit fit = {};
  std::vector<TimedSize> samples = {};  ///< one way; medians
};

/// What was found out about a job's links. The same on all ranks.
struct Tuning {
  int ranks = 1;
  int nodes = 1;
  std::string route = {};
  std::string injected = {};            ///< delays that were injected into links; may be empty
  std::vector<LevelCost> levels = {};   ///< those that the job has
  std::vector<std::size_t> sizes = {};  ///< bytes that were reduced
  std::vector<AlgorithmTimes> times = {};
  std::string table = {};  ///< the best; empty on one node, where there is nothing to choose
};

/// Makes a World whose allreduce between nodes follows `table`. Collective.
using OpenWorld = std::function<transport::World(const std::string& table)>;

/// Measures point-to-point messages on each level, then allreduce with each algorithm in a World
/// of its own. `iterations` 0: as many as the sizes allow. Collective.
[[nodiscard]] Tuning tune(const OpenWorld& open, int iterations);

/// For people.
[[nodiscard]] std::string as_text(const Tuning& tuning);

/// For programs: one object, documented in docs/command-line.md.
[[nodiscard]] std::string as_json(const Tuning& tuning);

}  // namespace rondo::tools

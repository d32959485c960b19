#pragma once

#include <CLI/CLI.hpp>

#include <filesystem>
#include <string>

#include "bench/bench.hpp"
#include "launch/launch_options.hpp"

namespace rondo::tools {

/// What the command line of a bench says.
struct BenchOptions {
  PlacementRequest request = {};
  FabricRequest fabric = {};
  std::filesystem::path flight_record = {};
  std::string sizes = {};
  std::string type = "f32";
  std::string reduction = "sum";
  std::string memory = "both";
  std::string buffers = "rewritten";
  std::string wait = "auto";
  std::string format = "table";
  std::string algorithms = {};
  bool in_place = false;
  bool out_of_place = false;
  int iterations = 0;
  int warm_up = -1;
  bool limit = false;
  int peer = -1;
  int groups = 2;
  bool both_ways = false;
  double least_bus_gb_per_second = 0.0;
};

/// Adds the options that make sense for `kind`. `options` must outlive the parsing.
void add_bench_options(CLI::App& command, const OperationKind& kind, BenchOptions& options);

/// What the options ask for. Throws UsageError.
[[nodiscard]] Bench bench_of(const OperationKind& kind, const BenchOptions& options);

/// Finds mistakes before ranks start. Throws UsageError.
void check(const OperationKind& kind, const BenchOptions& options, int ranks);

}  // namespace rondo::tools

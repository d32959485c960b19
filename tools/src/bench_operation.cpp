// The subcommands of `rondo bench` that measure one operation each.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <rondo/transport/team.hpp>
#include <rondo/transport/world.hpp>

#include "bench/bench.hpp"
#include "bench/bench_options.hpp"
#include "bench/header.hpp"
#include "bench/report.hpp"
#include "bench/verdict.hpp"
#include "command.hpp"
#include "exit_status.hpp"
#include "launch/environment.hpp"
#include "launch/launch_options.hpp"
#include "launch/launcher.hpp"
#include "launch/self.hpp"
#include "train/openmp_team.hpp"
#include "world_options.hpp"

namespace rondo::tools {
namespace {

void print_rows(const std::vector<BenchRow>& rows, const std::string& format) {
  std::string text;
  if (format == "json") {
    text = as_json(rows);
  } else {
    text = format == "csv" ? as_csv(rows) : as_table(rows);
  }
  std::fputs(text.c_str(), stdout);
}

int measure_as_rank(const OperationKind& kind, const BenchOptions& options) {
  const int threads = std::max(threads_from_environment(), 1);
  const std::unique_ptr<transport::Team> team = make_openmp_team(threads);
  transport::WorldOptions world_options;
  world_options.waiting = waiting_from(options.wait);
  world_options.on_stall = report_stall;
  world_options.team = team.get();
  world_options.fabric.allreduce = options.algorithms;
  transport::World world = transport::World::attach(world_options);
  const Bench bench = bench_of(kind, options);
  if (world.rank() == 0) print_header(world, bench, options.wait, threads);
  const auto rows = measure(world, bench);
  if (world.rank() == 0) print_rows(rows, options.format);
  const auto lines = complaints(rows, options.least_bus_gb_per_second);
  for (const std::string& line : lines) {
    if (world.rank() == 0) fmt::print(stderr, "rondo: {}\n", line);
  }
  return lines.empty() ? exit_done : exit_failed;
}

int run_bench(const OperationKind& kind, BenchOptions options,
              const std::vector<std::string>& arguments) {
  if (is_rank()) {
    refuse_other_size(options.request);
    refuse_other_fabric(options.fabric);
    check(kind, options, size_from_environment());
    return measure_as_rank(kind, options);
  }
  // Two ranks rather than none where two are needed.
  if (kind.ranks == BenchRanks::pair && options.request.ranks == 0) options.request.ranks = 2;
  const Placement placement = place(read_machine(), options.request);
  check(kind, options, placement.ranks());
  std::vector<std::string> command = {own_path()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return launch({command, placement, options.fabric, options.flight_record});
}

}  // namespace

void add_bench_operations(CLI::App& bench, const std::vector<std::string>& arguments, int& status) {
  for (const OperationKind& kind : operation_kinds()) {
    CLI::App* command = bench.add_subcommand(std::string(kind.name), std::string(kind.summary));
    auto options = std::make_shared<BenchOptions>();
    add_bench_options(*command, kind, *options);
    command->callback(
        [&kind, &arguments, &status, options] { status = run_bench(kind, *options, arguments); });
  }
}

}  // namespace rondo::tools

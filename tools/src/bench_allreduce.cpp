#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <rondo/transport/team.hpp>
#include <rondo/transport/world.hpp>

#include "bench/allreduce_bench.hpp"
#include "bench/allreduce_report.hpp"
#include "bench/byte_sizes.hpp"
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

struct Options {
  PlacementRequest request = {};
  std::string sizes = "4:64M";
  std::string memory = "both";
  std::string wait = "auto";
  std::string format = "table";
  int iterations = 0;
  bool limit = false;
};

AllreduceBench bench_of(const Options& options) {
  AllreduceBench bench;
  bench.sizes = byte_sizes(options.sizes);
  if (options.memory != "private") bench.memories.push_back(BenchMemory::arena);
  if (options.memory != "arena") bench.memories.push_back(BenchMemory::private_memory);
  bench.iterations = options.iterations;
  bench.limit = options.limit;
  return bench;
}

void print_header(const transport::World& world, const Options& options, int threads) {
  fmt::print(stderr, "# rondo {}, allreduce of floats in place, sum\n", RONDO_VERSION);
  fmt::print(stderr, "# {} ranks on 1 node, {} thread{} each, wait {}{}\n", world.size(), threads,
             threads == 1 ? "" : "s", options.wait,
             world.oversubscribed() ? ", more ranks than CPUs" : "");
}

void print_rows(const std::vector<AllreduceRow>& rows, const std::string& format) {
  std::string text;
  if (format == "json") {
    text = as_json(rows);
  } else {
    text = format == "csv" ? as_csv(rows) : as_table(rows);
  }
  std::fputs(text.c_str(), stdout);
}

int measure_as_rank(const Options& options) {
  const int threads = std::max(threads_from_environment(), 1);
  const std::unique_ptr<transport::Team> team = make_openmp_team(threads);
  transport::WorldOptions world_options;
  world_options.waiting = waiting_from(options.wait);
  world_options.on_stall = report_stall;
  world_options.team = team.get();
  transport::World world = transport::World::attach(world_options);
  if (world.rank() == 0) print_header(world, options, threads);
  const auto rows = measure_allreduce(world, bench_of(options));
  if (world.rank() == 0) print_rows(rows, options.format);
  const bool right = std::ranges::all_of(rows, [](const auto& row) { return row.wrong == 0; });
  if (!right && world.rank() == 0) fmt::print(stderr, "rondo: some sums are wrong\n");
  return right ? exit_done : exit_failed;
}

int run_bench(const Options& options, const std::vector<std::string>& arguments) {
  static_cast<void>(bench_of(options));  // mistakes are found before ranks start
  if (is_rank()) {
    refuse_other_size(options.request);
    return measure_as_rank(options);
  }
  std::vector<std::string> command = {own_path()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return launch({command, place(read_machine(), options.request)});
}

}  // namespace

void add_bench_allreduce(CLI::App& bench, const std::vector<std::string>& arguments, int& status) {
  CLI::App* command = bench.add_subcommand("allreduce", "Times allreduce on shared memory");
  auto options = std::make_shared<Options>();
  command->add_option("-m,--sizes", options->sizes, "Bytes: MIN, 4 MIN, ... MAX (default: 4:64M)")
      ->type_name("MIN:MAX");
  command->add_option("--memory", options->memory, "Where buffers lie (default: both)")
      ->check(CLI::IsMember({"arena", "private", "both"}))
      ->type_name("WHERE");
  command->add_option("--iterations", options->iterations, "Per size (default: 2000 to 30)")
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("I");
  command->add_flag("--limit", options->limit,
                    "Also measure, in turn, what one pass over shared memory costs at the least");
  command->add_option("--wait", options->wait, "How ranks wait (default: auto)")
      ->check(CLI::IsMember({"auto", "spin", "yield", "block"}))
      ->type_name("HOW");
  command->add_option("--format", options->format, "table, csv, or json: one array of objects")
      ->check(CLI::IsMember({"table", "csv", "json"}))
      ->type_name("FORMAT");
  add_launch_options(*command, options->request);
  command->footer(
      "Each rank rewrites its buffer before each timed region; times are those of the slowest "
      "rank.");
  command->callback([&arguments, &status, options] { status = run_bench(*options, arguments); });
}

}  // namespace rondo::tools

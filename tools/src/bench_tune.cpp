#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <rondo/transport/team.hpp>
#include <rondo/transport/world.hpp>

#include "bench/bench.hpp"
#include "bench/tuning.hpp"
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

struct TuneOptions {
  PlacementRequest request = {};
  FabricRequest fabric = {};
  std::string format = "text";
  int iterations = 0;
};

int tune_as_rank(const TuneOptions& options) {
  const auto team = make_openmp_team(std::max(threads_from_environment(), 1));
  const Tuning tuning = tune(
      [&](const std::string& table) {
        transport::WorldOptions world_options;
        world_options.on_stall = report_stall;
        world_options.team = team.get();
        world_options.fabric.allreduce = table;
        return transport::World::attach(world_options);
      },
      options.iterations);
  if (rank_name() != "0") return exit_done;
  std::fputs((options.format == "json" ? as_json(tuning) : as_text(tuning)).c_str(), stdout);
  return exit_done;
}

int run_tune(TuneOptions options, const std::vector<std::string>& arguments) {
  if (is_rank()) {
    refuse_other_size(options.request);
    refuse_other_fabric(options.fabric);
    return tune_as_rank(options);
  }
  if (options.request.ranks == 0) options.request.ranks = 2;
  std::vector<std::string> command = {own_path()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return launch({command, place(read_machine(), options.request), options.fabric});
}

}  // namespace

void add_bench_tune(CLI::App& bench, const std::vector<std::string>& arguments, int& status) {
  CLI::App* command = bench.add_subcommand(
      "tune", "Measure what messages cost inside and between nodes, and choose algorithms");
  auto options = std::make_shared<TuneOptions>();
  command->add_option("--format", options->format, "text, or json: one object")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str()
      ->type_name("FORMAT");
  command
      ->add_option("--iterations", options->iterations,
                   fmt::format("Per size (default: {} to {})", most_iterations, least_iterations))
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("I");
  add_launch_options(*command, options->request);
  add_fabric_options(*command, options->fabric);
  command->footer(
      "Two ranks unless -n says otherwise. The table is for [transport] allreduce in the\n"
      "configuration, or --algorithms of bench allreduce.");
  command->callback([&arguments, &status, options] { status = run_tune(*options, arguments); });
}

}  // namespace rondo::tools

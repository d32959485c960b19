#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "command.hpp"
#include "compare/comparison.hpp"
#include "exit_status.hpp"
#include "launch/environment.hpp"
#include "launch/launch_options.hpp"

namespace rondo::tools {
namespace {

struct CompareOptions {
  CompareRequest request = {};
  std::int64_t seeds = 3;
  bool table_only = false;
  bool dry_run = false;
};

void refuse_repeated(std::vector<std::int64_t> seeds) {
  std::ranges::sort(seeds);
  const auto twin = std::ranges::adjacent_find(seeds);
  if (twin != seeds.end()) throw UsageError(fmt::format("--seed-list: {} is there twice", *twin));
}

int run_compare(const CompareOptions& options) {
  if (is_rank()) {
    throw UsageError("rondo compare starts ranks of its own; start it without a launcher");
  }
  CompareRequest request = options.request;
  if (request.seeds.empty()) {
    request.seeds.resize(static_cast<std::size_t>(options.seeds));
    std::iota(request.seeds.begin(), request.seeds.end(), 1);
  }
  refuse_repeated(request.seeds);
  if (request.folder.empty()) {
    request.folder =
        std::filesystem::path("runs") / ("compare-" + request.training.config.stem().string());
  }
  if (options.dry_run) return list_runs(request);
  return options.table_only ? print_table(request) : compare(request);
}

void add_what_to_compare(CLI::App& app, CompareOptions& options) {
  CompareRequest& request = options.request;
  app.add_option("config", request.training.config, "The experiment's TOML file")
      ->required()
      ->type_name("CONFIG.toml");
  app.add_option("--schemes", request.schemes,
                 "What to compare, as in synchronous,k_step:period=16; may be repeated")
      ->required()
      ->type_name("LIST")
      ->take_all()
      ->expected(1)
      ->allow_extra_args(false);
  CLI::Option* count = app.add_option("--seeds", options.seeds, "Run each with the seeds 1 to N")
                           ->check(CLI::Range(1, 10'000))
                           ->capture_default_str()
                           ->type_name("N");
  app.add_option("--seed-list", request.seeds, "Run each with these seeds, as in 1,5,7")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::NonNegativeNumber)
      ->excludes(count)
      ->type_name("LIST");
  app.add_option("--set", request.training.settings,
                 "Overrides a key of the file for all runs; may be repeated")
      ->type_name("SECTION.KEY=VALUE")
      ->take_all()
      ->expected(1)
      ->allow_extra_args(false);
  app.add_option("--accuracy", request.accuracy,
                 "Also compare the time until so much test accuracy, in percent")
      ->check(CLI::Range(0.0, 100.0))
      ->type_name("PERCENT");
}

void add_how_to_run(CLI::App& app, CompareOptions& options) {
  app.add_option("--folder", options.request.folder,
                 "Where runs and table go (default: runs/compare-CONFIG)")
      ->type_name("DIR");
  app.add_flag("--anew", options.request.anew,
               "Replace runs of another configuration that are in the folder");
  CLI::Option* table = app.add_flag("--table-only", options.table_only,
                                    "Run nothing; print the table of what has run");
  app.add_flag("--dry-run", options.dry_run, "Run nothing; list what would run")->excludes(table);
}

}  // namespace

void add_compare(CLI::App& app, int& status) {
  CLI::App* compare =
      app.add_subcommand("compare", "Train with several update schemes and print one table");
  compare->footer(
      "An item of LIST is SCHEME[:KEY=VALUE]...; a KEY without a dot is one of [update], as in\n"
      "k_step:period=16:optimizer.learning_rate=0.05. Each run has its folder DIR/ITEM/seedN; "
      "runs\n"
      "that have completed are not run again, so the same command goes on after an interruption.\n"
      "The table goes to stdout and to DIR/compare.csv, all else to stderr. Status: 0 done, else\n"
      "that of the first run that failed, as rondo train has it; 128 + n ended by signal n.");
  auto options = std::make_shared<CompareOptions>();
  add_what_to_compare(*compare, *options);
  add_how_to_run(*compare, *options);
  add_launch_options(*compare, options->request.training.request);
  add_fabric_options(*compare, options->request.training.fabric);
  compare->callback([&status, options] { status = run_compare(*options); });
}

}  // namespace rondo::tools

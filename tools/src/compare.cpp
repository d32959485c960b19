// `rondo compare`: one training run after the other, and one table of them.
//
// A comparison is made of each item of --schemes with each seed, configured and placed as
// `rondo train` would do it. Seeds are the outer loop, so that a machine that becomes slower is
// slower for all schemes alike.
//
// A folder is locked while it is compared in, so that two comparisons cannot start the same run.
// SIGINT, SIGTERM and SIGHUP are held the whole time: they end the ranks that run, and no further
// run starts; the table so far is still printed.
//
// The plan is made first, with every configuration read and every folder looked at; what runs, what
// is refused and what is left out follow from it. A run's result is always read from its folder, so
// that a comparison that was interrupted, and one that is only printed, see the same.

#include "compare.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <memory>
#include <numeric>
#include <system_error>
#include <utility>

#include <rondo/train/run_directory.hpp>
#include <rondo/train/variant.hpp>

#include "compare/runs.hpp"
#include "failure.hpp"
#include "files.hpp"
#include "options.hpp"
#include "say.hpp"

namespace rondo::tools {
namespace {

// "2 ranks x 1 thread, 2 nodes joined by shm", and what was injected.
std::string conditions_of(const PlannedRun& run) {
  const RunRecord::Start& start = *run.found.record.start;
  std::string text =
      fmt::format("{} x {}", counted(start.ranks, "rank"), counted(start.threads, "thread"));
  if (start.nodes > 1)
    text += fmt::format(", {} joined by {}", counted(start.nodes, "node"), start.route);
  for (const auto& [rank, factor] : run.training.experiment.inject.slow_ranks) {
    text += fmt::format(", injected: rank {} {:g} times as slow", rank, factor);
  }
  return text;
}

// The conditions of the completed runs: the same for all, unless an item chooses otherwise.
std::string conditions_of(const Plan& plan) {
  // In the order of the runs; usually there is one.
  std::vector<std::string> seen;
  for (const PlannedRun& run : plan.runs) {
    if (run.found.state != RunState::completed) continue;
    std::string conditions = conditions_of(run);
    if (std::ranges::count(seen, conditions) == 0) seen.push_back(std::move(conditions));
  }
  return fmt::format("{}", fmt::join(seen, "; "));
}

struct Comparison {
  std::string conditions;
  Table table;
};

// The table of what has completed so far. One row for each item, over the seeds that have
// completed; an item of which none has is a row of dashes.
Comparison comparison_of(const Plan& plan, const CompareRequest& request) {
  const TableHead head = {.conditions = conditions_of(plan), .accuracy = request.accuracy};
  std::vector<SchemeSummary> rows;
  for (std::size_t i = 0; i < plan.items.size(); ++i) {
    std::vector<RunRecord> completed;
    for (const PlannedRun& run : plan.runs) {
      if (run.item == i && run.found.state == RunState::completed) {
        completed.push_back(run.found.record);
      }
    }
    rows.push_back(
        summarise(plan.items[i].label, request.seeds.size(), completed, request.accuracy));
  }
  return {head.conditions, comparison_table(head, rows)};
}

void print(const Comparison& comparison) {
  if (!comparison.conditions.empty()) fmt::print("{}\n", comparison.conditions);
  fmt::print("{}", comparison.table.text());
}

// Makes the folder. No other process compares in it while the result lives.
train::DirectoryLock claim(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error && ::access(folder.c_str(), R_OK) != 0) error = {errno, std::generic_category()};
  if (error) {
    throw UsageError(fmt::format("cannot use the folder {}: {}; choose another with --folder",
                                 folder.string(), error.message()));
  }
  train::DirectoryLock claimed(folder);
  if (claimed.is_in_use()) {
    throw UsageError(
        fmt::format("another rondo compare runs in {}; wait for it, or choose another --folder",
                    folder.string()));
  }
  return claimed;
}

// A comparison's stdout is for its table: what ranks print is shown on a terminal only.
Descriptor open_output() {
  if (isatty(STDERR_FILENO) == 1) return Descriptor(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0));
  return Descriptor(::open("/dev/null", O_WRONLY | O_CLOEXEC));
}

// Starts what has not run, and keeps the first failure's status.
class Runner {
 public:
  Runner(Plan& plan, const CompareRequest& request) : plan_(plan), request_(request) {
    left_ = static_cast<std::size_t>(std::ranges::count_if(plan.runs, must_run));
  }

  [[nodiscard]] static bool must_run(const PlannedRun& run) {
    return run.found.state != RunState::completed;
  }

  [[nodiscard]] int run_all() {
    const std::size_t all = plan_.runs.size();
    say("rondo: {} of {} to run, in {}\n", left_, counted(static_cast<std::int64_t>(all), "run"),
        request_.folder.string());
    print_placement_note();
    for (PlannedRun& run : plan_.runs) {
      if (!must_run(run)) continue;
      // A signal between two runs waits in the queue, because it is held.
      end_signal_ = end_signal_ != 0 ? end_signal_ : HeldSignals::take_end_signal();
      if (end_signal_ != 0 || !may_go_on()) break;
      run_one(run);
      write_csv();
    }
    if (end_signal_ == 0) return status_;
    say("rondo: interrupted; the same command goes on with what is missing\n");
    return signal_base + end_signal_;
  }

  void write_csv() const {
    replace_file(request_.folder / "compare.csv", comparison_of(plan_, request_).table.csv(),
                 "choose another folder with --folder");
  }

 private:
  // No further run can be started once the program has been replaced; what has run is still shown.
  bool may_go_on() {
    try {
      expect_own_program();
      return true;
    } catch (const UsageError&) {
      const int status = report(std::current_exception());
      if (status_ == exit_done) status_ = status;
      return false;
    }
  }

  void print_placement_note() const {
    const std::string& note = plan_.runs.front().training.placement.note;
    if (left_ > 0 && !note.empty()) say("rondo: {}\n", note);
  }

  // The run's result is read from its folder, never from the ranks.
  void run_one(PlannedRun& run) {
    ++begun_;
    const int status = train(run);
    run.found = find_run(run.request.folder, run.training);
    if (run.found.state == RunState::completed) {
      const SchemeSummary one = summarise({}, 1, {&run.found.record, 1}, std::nullopt);
      say("rondo: {}/{} {}: accuracy {:.2f} %, best {:.2f} %, {:.1f} s\n", begun_, left_, run.name,
          one.final_accuracy->mean, one.best_accuracy->mean, *one.seconds);
    } else if (end_signal_ == 0) {
      say("rondo: {}/{} {}: failed with status {}\n", begun_, left_, run.name, status);
    }
    if (status_ == exit_done && end_signal_ == 0) status_ = status;
  }

  // An error that ends one run is reported, and must not end the comparison.
  int train(const PlannedRun& run) {
    try {
      // A run that did not complete begins anew: a comparison resumes none.
      remove_run(run.request.folder);
      const train::RunDirectory folder(run.request.folder, run.training.experiment);
      Job job = training_job(run.request, run.training, folder.path());
      // One line for each run is enough; ranks report errors on stderr all the same.
      job.output = output_.value();
      job.quiet = true;
      const JobEnd end = launch(job, signals_);
      end_signal_ = end.end_signal;
      return end.status;
    } catch (const std::exception&) {
      return report(std::current_exception());
    }
  }

  Plan& plan_;
  const CompareRequest& request_;
  HeldSignals signals_ = {};
  Descriptor output_ = open_output();
  std::size_t left_ = 0;
  std::size_t begun_ = 0;
  int status_ = exit_done;
  int end_signal_ = 0;
};

// As --dry-run says it.
std::string describe(const FoundRun& found, bool anew) {
  switch (found.state) {
    case RunState::completed:
      return "has run";
    case RunState::incomplete:
      return "would run anew: incomplete";
    case RunState::different:
      return (anew ? "would replace another run: " : "holds another run: ") + found.difference;
    default:
      return "would run";
  }
}

// Runs what has not run yet, one after the other, and prints the table to stdout; a line for every
// run goes to stderr, the table also to compare.csv in the folder. A run that fails does not keep
// the others from running. Returns the status of the first that failed, 128 + n when signal n ended
// the comparison, or 0. Throws UsageError before anything runs.
int compare(const CompareRequest& request) {
  static_cast<void>(make_plan(request));  // mistakes end here, before the folder is made
  const train::DirectoryLock claimed = claim(request.folder);
  // Once more behind the lock: another comparison may have completed runs meanwhile.
  Plan plan = make_plan(request);
  if (!request.anew) refuse_other_runs(plan);
  Runner runner(plan, request);
  const int status = runner.run_all();
  runner.write_csv();
  print(comparison_of(plan, request));
  return status;
}

// Says on stdout what compare() would run, and changes nothing. Throws UsageError where that does.
int list_runs(const CompareRequest& request) {
  const Plan plan = make_plan(request);
  for (const PlannedRun& run : plan.runs) {
    fmt::print("{}: {} ({})\n", run.name, describe(run.found, request.anew),
               run.request.folder.string());
  }
  if (!request.anew) refuse_other_runs(plan);
  return exit_done;
}

// Prints the table of what has run, and writes nothing.
int print_table(const CompareRequest& request) {
  const Plan plan = make_plan(request);
  for (const PlannedRun& run : plan.runs) {
    if (run.found.state != RunState::different) continue;
    say("rondo: {} is left out: {}\n", run.request.folder.string(), run.found.difference);
  }
  print(comparison_of(plan, request));
  return exit_done;
}

struct CompareOptions {
  CompareRequest request = {};
  std::int64_t seeds = 3;
  bool table_only = false;
  bool dry_run = false;
};

// The same seed twice would be one run, counted twice.
void refuse_repeated(std::vector<std::int64_t> seeds) {
  std::ranges::sort(seeds);
  const auto twin = std::ranges::adjacent_find(seeds);
  if (twin != seeds.end()) throw UsageError(fmt::format("--seed-list: {} is there twice", *twin));
}

int run_compare(const CompareOptions& options) {
  // Under another launcher every rank would start ranks of its own.
  refuse_to_be_rank("rondo compare");
  CompareRequest request = options.request;
  refuse_what_is_read_once(request.training.config);
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

void add_what_to_compare(Command& command, CompareOptions& options) {
  CompareRequest& request = options.request;
  add_experiment_options(command, request.training.config, request.training.settings, "",
                         " for all runs");
  command
      .option("--schemes LIST", request.schemes,
              "What to compare, as in synchronous,k_step:period=16; may be repeated")
      .required()
      .repeatable();
  const Option count = command.option("--seeds N", options.seeds, "Run each with the seeds 1 to N")
                           .range(1, 10'000)
                           .with_default();
  command.option("--seed-list LIST", request.seeds, "Run each with these seeds, as in 1,5,7")
      .separated_by(',')
      .not_negative()
      .excludes(count);
  command
      .option("--accuracy PERCENT", request.accuracy,
              "Also compare the time until so much test accuracy, in percent")
      .range(0.0, 100.0);
}

void add_how_to_run(Command& command, CompareOptions& options) {
  command.option("--folder DIR", options.request.folder,
                 "Where runs and table go (default: runs/compare-CONFIG)");
  command.flag("--anew", options.request.anew,
               "Replace runs of another configuration that are in the folder");
  const Option table = command.flag("--table-only", options.table_only,
                                    "Run nothing; print the table of what has run");
  command.flag("--dry-run", options.dry_run, "Run nothing; list what would run").excludes(table);
}

TrainRequest request_of(const CompareRequest& request, const SchemeItem& item, std::int64_t seed) {
  TrainRequest run = request.training;
  // The file's settings of its scheme are not for other schemes, nor is the library that has it.
  const bool names_plugin = std::ranges::any_of(item.settings, [](std::string_view setting) {
    return setting.starts_with("update.plugin=");
  });
  run.settings.clear();
  if (!names_plugin) run.settings = {"update.plugin=", "update.plugin_settings={}"};
  // The command line's settings of links hold for all items, unless an item says otherwise.
  const std::vector<std::string> given = all_settings(request.training);
  run.settings.insert(run.settings.end(), given.begin(), given.end());
  run.settings.insert(run.settings.end(), item.settings.begin(), item.settings.end());
  run.settings = train::settings_of_variant(run.config, run.settings);
  run.launch.fabric = {};
  // The last setting counts, so neither the file nor an item can choose the seed.
  run.settings.push_back(fmt::format("train.seed={}", seed));
  run.folder = request.folder / item.label / fmt::format("seed{}", seed);
  return run;
}

// Whether the configuration is right without any item.
bool is_readable(const TrainRequest& request) {
  try {
    static_cast<void>(train::read_experiment(request.config, all_settings(request)));
    return true;
  } catch (const train::ConfigError&) {
    return false;
  }
}

// The result of `read` for the configuration of a run; an error that only the item can have caused
// names the item.
template <class Read>
auto read_run(const CompareRequest& request, const SchemeItem& item, const Read& read) {
  try {
    return read();
  } catch (const train::ConfigError& error) {
    // The configuration is wrong without the item, too: then its own message is right.
    if (!is_readable(request.training)) throw;
    std::string_view problem = error.what();
    constexpr std::string_view option = "--set ";
    if (problem.starts_with(option)) problem.remove_prefix(option.size());
    throw UsageError(fmt::format("scheme '{}': {}", item.text, problem));
  }
}

// Fake nodes may come from an item, all other links only from the command line or the
// configuration.
Training plan_run(const CompareRequest& request, const SchemeItem& item, const TrainRequest& run,
                  const Machine& machine) {
  const train::Experiment experiment =
      read_run(request, item, [&] { return train::read_experiment(run.config, run.settings); });
  Training training = plan_training(run, experiment, machine);
  const std::optional<int> nodes = training.fabric.fake_nodes;
  training.fabric = request.training.launch.fabric;
  if (nodes) training.fabric.fake_nodes = nodes;
  static_cast<void>(fake_nodes_of(training.fabric, training.placement.ranks()));  // may refuse
  return training;
}

}  // namespace

void add_compare(Command& root) {
  Command compare = root.add("compare", "Train with several update schemes and print one table");
  auto options = std::make_shared<CompareOptions>();
  add_what_to_compare(compare, *options);
  add_how_to_run(compare, *options);
  add_placement_options(compare, options->request.training.launch.placement);
  add_fabric_options(compare, options->request.training.launch.fabric);
  compare.footer(
      R"(An item of LIST is SCHEME[:KEY=VALUE]...; a KEY without a dot is one of [update], as in
k_step:period=16:optimizer.learning_rate=0.05. Each run has its folder DIR/ITEM/seedN; runs
that have completed are not run again, so the same command goes on after an interruption.
The table goes to stdout and to DIR/compare.csv, all else to stderr. Status: 0 done, else
that of the first run that failed, as rondo train has it; 128 + n ended by signal n.)");
  compare.does([options](const CommandLine& /*line*/) { return run_compare(*options); });
}

Plan make_plan(const CompareRequest& request) {
  refuse_setting(request.training, "train.seed", "choose seeds by --seeds or --seed-list");
  refuse_setting(request.training, "update.scheme", "choose schemes by --schemes");
  Plan plan{.items = parse_scheme_items(request.schemes)};
  const Machine machine = read_machine();
  // Everything is planned before anything runs: a mistake in the last item is found before the
  // first run.
  for (const std::int64_t seed : request.seeds) {
    for (std::size_t i = 0; i < plan.items.size(); ++i) {
      const SchemeItem& item = plan.items[i];
      PlannedRun run{
          .item = i,
          .name = fmt::format("{} seed {}", item.label, seed),
          .request = read_run(request, item, [&] { return request_of(request, item, seed); })};
      run.training = plan_run(request, item, run.request, machine);
      run.found = find_run(run.request.folder, run.training);
      plan.runs.push_back(std::move(run));
    }
  }
  return plan;
}

void refuse_other_runs(const Plan& plan) {
  for (const PlannedRun& run : plan.runs) {
    if (run.found.state != RunState::different) continue;
    throw UsageError(fmt::format(
        "{} holds another run: {}; choose another --folder, or add --anew to replace such runs",
        run.request.folder.string(), run.found.difference));
  }
}

}  // namespace rondo::tools

#include "compare/comparison.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <system_error>

#include "compare/comparison_table.hpp"
#include "exit_status.hpp"
#include "failure.hpp"
#include "launch/descriptor.hpp"

namespace rondo::tools {
namespace {

std::string plural(std::int64_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string conditions_of(const PlannedRun& run) {
  const RunRecord::Start& start = *run.found.record.start;
  std::string text =
      fmt::format("{} x {}", plural(start.ranks, "rank"), plural(start.threads, "thread"));
  if (start.nodes > 1)
    text += fmt::format(", {} joined by {}", plural(start.nodes, "node"), start.route);
  for (const auto& [rank, factor] : run.training.experiment.inject.slow_ranks) {
    text += fmt::format(", injected: rank {} {:g} times as slow", rank, factor);
  }
  return text;
}

// What the completed runs ran on: the same for all, unless an item chooses otherwise.
std::string conditions_of(const Plan& plan) {
  std::vector<std::string> seen;
  for (const PlannedRun& run : plan.runs) {
    if (run.found.state != RunState::completed) continue;
    std::string conditions = conditions_of(run);
    if (std::ranges::count(seen, conditions) == 0) seen.push_back(std::move(conditions));
  }
  return fmt::format("{}", fmt::join(seen, "; "));
}

struct Table {
  TableHead head;
  std::vector<SchemeSummary> rows = {};
};

Table table_of(const Plan& plan, const CompareRequest& request) {
  Table table{.head = {.conditions = conditions_of(plan), .accuracy = request.accuracy}};
  for (std::size_t i = 0; i < plan.items.size(); ++i) {
    std::vector<RunRecord> completed;
    for (const PlannedRun& run : plan.runs) {
      if (run.item == i && run.found.state == RunState::completed) {
        completed.push_back(run.found.record);
      }
    }
    table.rows.push_back(
        summarise(plan.items[i].label, request.seeds.size(), completed, request.accuracy));
  }
  return table;
}

void print(const Table& table) {
  fmt::print("{}", comparison_table(table.head, table.rows));
  std::fflush(stdout);
}

// Makes the folder. Nobody else compares in it as long as the result is open.
Descriptor claim(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  Descriptor claimed(error ? -1 : ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (claimed.value() < 0) {
    throw UsageError(fmt::format(
        "cannot use the folder {}: {}; choose another with --folder", folder.string(),
        error ? error.message() : std::error_code(errno, std::generic_category()).message()));
  }
  if (::flock(claimed.value(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
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
    fmt::print(stderr, "rondo: {} of {} to run, in {}\n", left_,
               plural(static_cast<std::int64_t>(all), "run"), request_.folder.string());
    print_placement_note();
    for (PlannedRun& run : plan_.runs) {
      if (!must_run(run)) continue;
      end_signal_ = end_signal_ != 0 ? end_signal_ : HeldSignals::take_end_signal();
      if (end_signal_ != 0) break;
      run_one(run);
      write_csv();
    }
    if (end_signal_ == 0) return status_;
    fmt::print(stderr, "rondo: interrupted; the same command goes on with what is missing\n");
    return signal_base + end_signal_;
  }

  void write_csv() const {
    const Table table = table_of(plan_, request_);
    replace_file(request_.folder / "compare.csv", comparison_csv(table.head, table.rows));
  }

 private:
  void print_placement_note() const {
    const std::string& note = plan_.runs.front().training.placement.note;
    if (left_ > 0 && !note.empty()) fmt::print(stderr, "rondo: {}\n", note);
  }

  void run_one(PlannedRun& run) {
    ++begun_;
    const int status = train(run);
    run.found = find_run(run.request.folder, run.training);
    if (run.found.state == RunState::completed) {
      const SchemeSummary one = summarise({}, 1, {&run.found.record, 1}, std::nullopt);
      fmt::print(stderr, "rondo: {}/{} {}: accuracy {:.2f} %, best {:.2f} %, {:.1f} s\n", begun_,
                 left_, run.name, one.final_accuracy->mean, one.best_accuracy->mean, *one.seconds);
    } else if (end_signal_ == 0) {
      fmt::print(stderr, "rondo: {}/{} {}: failed with status {}\n", begun_, left_, run.name,
                 status);
    }
    if (status_ == exit_done && end_signal_ == 0) status_ = status;
  }

  int train(const PlannedRun& run) {
    try {
      remove_run(run.request.folder);
      const RunFolder folder(run.request.folder, run.training.experiment);
      Job job = training_job(run.request, run.training, folder);
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

std::string describe(const FoundRun& found) {
  switch (found.state) {
    case RunState::completed:
      return "has run";
    case RunState::incomplete:
      return "would run anew: incomplete";
    case RunState::different:
      return "holds another run: " + found.difference;
    default:
      return "would run";
  }
}

}  // namespace

int compare(const CompareRequest& request) {
  static_cast<void>(make_plan(request));  // mistakes end here, before the folder is made
  const Descriptor claimed = claim(request.folder);
  Plan plan = make_plan(request);
  if (!request.anew) refuse_other_runs(plan);
  Runner runner(plan, request);
  const int status = runner.run_all();
  runner.write_csv();
  print(table_of(plan, request));
  return status;
}

int list_runs(const CompareRequest& request) {
  for (const PlannedRun& run : make_plan(request).runs) {
    fmt::print("{}: {} ({})\n", run.name, describe(run.found), run.request.folder.string());
  }
  return exit_done;
}

int print_table(const CompareRequest& request) {
  const Plan plan = make_plan(request);
  for (const PlannedRun& run : plan.runs) {
    if (run.found.state != RunState::different) continue;
    fmt::print(stderr, "rondo: {} is left out: {}\n", run.request.folder.string(),
               run.found.difference);
  }
  print(table_of(plan, request));
  return exit_done;
}

}  // namespace rondo::tools

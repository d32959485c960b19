// The records that runs left in their folders: their events, whether they are the runs that are
// wanted, and what the completed runs of each scheme come to.
//
// Folders are read each time and nothing is remembered besides them, so `rondo compare` can be
// interrupted at any moment. Damaged lines are ignored: a run that was killed may end with one.
//
// For the table, totals over a run's epochs are made first, then means over runs; deviations are
// those of a sample. A run that did not record a number leaves the mean out instead of counting as
// zero.

#include "compare/runs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include <rondo/train/run_directory.hpp>

#include "failure.hpp"
#include "files.hpp"

namespace rondo::tools {
namespace {

namespace fs = std::filesystem;

using Json = nlohmann::json;

// A field of an event that is an object; null when there is none.
const Json* field_of(const Json& event, const char* name) {
  if (!event.is_object()) return nullptr;
  const auto found = event.find(name);
  return found == event.end() ? nullptr : &*found;
}

std::int64_t count_in(const Json& event, const char* name) {
  const Json* const field = field_of(event, name);
  return field != nullptr && field->is_number_integer() ? field->get<std::int64_t>() : 0;
}

EpochRecord epoch_of(const Json& event) {
  return {
      // JSON has no NaN: it is written as null.
      .accuracy = number_in(event, "accuracy").value_or(std::numeric_limits<double>::quiet_NaN()),
      .seconds = number_in(event, "seconds").value_or(0.0),
      .global_reductions = number_in(event, "global_reductions").value_or(0.0),
      .local_reductions = number_in(event, "local_reductions").value_or(0.0),
      .bytes_sent = number_in(event, "bytes_sent").value_or(0.0),
      .global_bytes = number_in(event, "global_bytes"),
      .local_bytes = number_in(event, "local_bytes")};
}

// The steps that a run has trained in another folder, for which there are no epochs here. The event
// of the epoch within which it was resumed has all figures of that epoch.
double steps_elsewhere(const Json& start, const Json& resume) {
  const double step = number_in(resume, "total_step").value_or(0.0);
  const double per_epoch = number_in(start, "steps_per_epoch").value_or(0.0);
  return per_epoch > 0.0 ? per_epoch * std::floor(step / per_epoch) : step;
}

// Adds what one line says; `start` is what the events so far say of the run. Other events are of no
// interest here.
void add(const Json& event, Json& start, RunRecord& record) {
  const std::string kind = text_in(event, "event");
  if (kind == "start") {
    start = event;
  } else if (kind == "resume") {
    overlay_resume(start, event);
    if (record.epochs.empty()) record.steps_elsewhere = steps_elsewhere(start, event);
  } else if (kind == "epoch") {
    record.epochs.push_back(epoch_of(event));
  } else if (kind == "end") {
    record.end_reason = text_in(event, "reason");
  }
}

using KeyText = std::pair<std::string, std::string>;  // "section.key" and its value

// The experiment that was asked for: a run records what grid.plan = "auto" has chosen instead.
train::Experiment without_choice(train::Experiment recorded) {
  if (recorded.grid.plan != train::PlanChoice::chosen) return recorded;
  recorded.grid = {.plan = train::PlanChoice::automatic, .batch_norm = recorded.grid.batch_norm};
  return recorded;
}

// As this version would write it, to be compared with `wanted`; as it is when this version cannot
// read it.
std::string rewritten(const std::string& toml, const train::Experiment& wanted) {
  try {
    // Read and written again: keys that this version has added get their defaults.
    const train::Experiment recorded = train::parse_recorded(toml, "recorded");
    return train::to_toml(
        wanted.grid.plan == train::PlanChoice::automatic ? without_choice(recorded) : recorded);
  } catch (const train::ConfigError&) {
    return toml;
  }
}

// Empty when they are the same.
std::string differing(const char* name, std::int64_t recorded, std::int64_t wanted) {
  if (recorded == wanted) return {};
  return fmt::format("{} is {}, would be {}", name, recorded, wanted);
}

// Ranks, threads and nodes are not part of a configuration, but change what a run computes. The
// first difference is enough for a message: the folder holds another run.
std::string difference_of(const RunRecord::Start& start, const Training& training) {
  const int ranks = training.placement.ranks();
  for (const std::string& difference :
       {differing("the number of ranks", start.ranks, ranks),
        differing("the number of threads", start.threads, training.placement.threads),
        differing("the number of nodes", start.nodes, fake_nodes_of(training.fabric, ranks))}) {
    if (!difference.empty()) return difference;
  }
  return first_difference(start.config, training.experiment);
}

// The files that a run may have written; all others are the user's. A folder that the user has
// named may hold anything else.
bool is_of_a_run(const std::string& name) {
  constexpr std::array names = {"config.toml",           "find-rate.json",    "metrics.jsonl",
                                "metrics.jsonl.damaged", "model.safetensors", "report.html",
                                "token_trace.jsonl"};
  return std::ranges::find(names, name) != names.end() ||
         (name.starts_with("flight-rank") && name.ends_with(".json")) ||
         (name.starts_with("profile") && name.ends_with(".json"));
}

using Runs = std::span<const RunRecord>;

double final_accuracy(const RunRecord& run) { return run.epochs.back().accuracy; }

// One number of each run.
std::vector<double> of_each(Runs runs, const std::function<double(const RunRecord&)>& value) {
  std::vector<double> values;
  std::ranges::transform(runs, std::back_inserter(values), value);
  return values;
}

std::optional<double> mean(std::span<const double> values) {
  const auto both = mean_and_deviation(values);
  return both ? std::optional(both->mean) : std::nullopt;
}

// Whether the events of all its epochs are here.
bool is_whole(const RunRecord& run) { return run.steps_elsewhere <= 0.0; }

// The mean over runs of the sum over epochs; nothing where epochs of a run are in another folder.
std::optional<double> mean_total(Runs runs, double EpochRecord::* member) {
  if (!std::ranges::all_of(runs, is_whole)) return std::nullopt;
  return mean(of_each(runs, [member](const RunRecord& run) {
    double total = 0.0;
    for (const EpochRecord& epoch : run.epochs) total += epoch.*member;
    return total;
  }));
}

// The same of what some runs may not have recorded; then there is none.
std::optional<double> mean_total(Runs runs, std::optional<double> EpochRecord::* member) {
  if (!std::ranges::all_of(runs, is_whole)) return std::nullopt;
  std::vector<double> totals;
  for (const RunRecord& run : runs) {
    double total = 0.0;
    for (const EpochRecord& epoch : run.epochs) {
      if (!(epoch.*member)) return std::nullopt;
      total += *(epoch.*member);
    }
    totals.push_back(total);
  }
  return mean(totals);
}

// "88.00 +- 2.83"; without a deviation for a single run.
std::string percent(const std::optional<MeanAndDeviation>& value) {
  if (!value) return "-";
  if (!value->deviation) return fmt::format("{:.2f}", value->mean);
  return fmt::format("{:.2f} +- {:.2f}", value->mean, *value->deviation);
}

// How long it took to the accuracy, and how many runs that is the mean of when not all got there.
std::string time_to_it(const SchemeSummary& row) {
  if (row.reached == 0) return "-";
  const std::string seconds = fmt::format("{:.1f}", *row.time_to_it);
  return row.reached == row.done ? seconds
                                 : fmt::format("{} ({}/{})", seconds, row.reached, row.done);
}

// The parts of an accuracy, as two columns of CSV.
auto mean_of(std::optional<MeanAndDeviation> SchemeSummary::* member) {
  return [member](const SchemeSummary& row) {
    return row.*member ? std::optional((row.*member)->mean) : std::nullopt;
  };
}
auto deviation_of(std::optional<MeanAndDeviation> SchemeSummary::* member) {
  return [member](const SchemeSummary& row) {
    return row.*member ? (row.*member)->deviation : std::nullopt;
  };
}

// A list of layers has one a line, behind "layers = [" and before "]".
std::string rest_of_list(std::istream& lines) {
  std::string list;
  for (std::string line; std::getline(lines, line) && line != "]";) {
    const std::size_t first = line.find_first_not_of(' ');
    if (first != std::string::npos) list += line.substr(first);  // a damaged file has any lines
  }
  return list + "]";
}

}  // namespace

// A value of the wrong type is treated as absent: files of other versions must not end the program.
std::optional<double> number_in(const Json& event, const char* name) {
  const Json* const field = field_of(event, name);
  return field != nullptr && field->is_number() ? std::optional(field->get<double>())
                                                : std::nullopt;
}

std::string text_in(const Json& event, const char* name) {
  const Json* const field = field_of(event, name);
  return field != nullptr && field->is_string() ? field->get<std::string>() : std::string();
}

// Versions that wrote neither configuration nor steps into the event leave the former as it was,
// and the latter unknown: the run may have been extended.
void overlay_resume(Json& start, const Json& resume) {
  if (!start.is_object()) return;
  start.erase("total_steps");
  for (const auto& [name, value] : resume.items()) {
    // These are of the moment, and not of the run.
    constexpr std::array<std::string_view, 4> of_the_moment = {"event", "epoch", "total_step",
                                                               "checkpoint"};
    if (std::ranges::find(of_the_moment, name) == of_the_moment.end()) start[name] = value;
  }
}

// The keys of a text as to_toml() writes it: one key a line, and nothing else.
std::vector<std::pair<std::string, std::string>> keys_of(const std::string& toml) {
  std::vector<KeyText> keys;
  std::string section;
  std::istringstream lines(toml);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t equals = line.find(" = ");
    if (line.starts_with('[') && line.ends_with(']')) {
      section = line.substr(1, line.size() - 2);
    } else if (equals != std::string::npos) {
      std::string value = line.substr(equals + 3);
      if (value == "[") value += rest_of_list(lines);
      keys.emplace_back(section + "." + line.substr(0, equals), std::move(value));
    }
  }
  return keys;
}

bool RunRecord::ended_well() const {
  // Other reasons are an error, or somebody who stopped the run.
  return end_reason == "completed" || end_reason == "max_steps";
}

bool RunRecord::completed() const { return ended_well() && start.has_value() && !epochs.empty(); }

void for_each_event(const std::filesystem::path& metrics,
                    const std::function<void(const nlohmann::json& event)>& visit,
                    const std::function<void(std::size_t line)>& damaged) {
  errno = 0;
  std::ifstream file(metrics);
  // A file that cannot be read now is not empty: a completed run would be trained again.
  if (!file && errno != ENOENT && errno != ENOTDIR) fail_to_read(metrics);
  std::size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    const Json event = Json::parse(line, nullptr, false);
    if (event.is_object()) {
      visit(event);
    } else {
      damaged(number);
    }
  }
  if (file.bad()) fail_to_read(metrics);
}

RunRecord read_run_record(const std::filesystem::path& metrics) {
  RunRecord record;
  Json start;
  for_each_event(
      metrics, [&](const Json& event) { add(event, start, record); }, [](std::size_t /*line*/) {});
  if (!start.is_object()) return record;
  record.start = {.config = text_in(start, "config"),
                  .ranks = count_in(start, "ranks"),
                  .threads = count_in(start, "threads"),
                  .nodes = count_in(start, "nodes"),
                  .route = text_in(start, "route")};
  return record;
}

std::string first_difference(const std::string& recorded, const train::Experiment& wanted) {
  const std::vector<KeyText> old_keys = keys_of(rewritten(recorded, wanted));
  const std::vector<KeyText> new_keys = keys_of(train::to_toml(wanted));
  for (const auto& [key, value] : new_keys) {
    // Both have a few dozen keys: a search for each is fast enough.
    std::string old = "not set";
    for (const auto& [old_key, old_value] : old_keys) {
      if (old_key == key) old = old_value;
    }
    if (old != value) return fmt::format("{} is {}, would be {}", key, old, value);
  }
  if (old_keys.size() == new_keys.size()) return {};
  return "it has keys that this version does not know";
}

// metrics.jsonl takes precedence, because it has the configuration of the run's last part.
FoundRun find_run(const fs::path& folder, const Training& training) {
  FoundRun found;
  found.record = read_run_record(folder / "metrics.jsonl");
  if (found.record.start) {
    found.difference = difference_of(*found.record.start, training);
  } else if (is_there(folder / "config.toml")) {
    found.difference = first_difference(read_file(folder / "config.toml"), training.experiment);
  } else if (!is_there(folder / "metrics.jsonl")) {
    return found;
  }
  if (!found.difference.empty()) {
    found.state = RunState::different;
  } else {
    found.state = found.record.completed() ? RunState::completed : RunState::incomplete;
  }
  return found;
}

namespace {

// The entries of a folder that `chosen` accepts, with all that is in them. Lists first and removes
// then: removing while listing may skip files.
template <class Chosen>
void remove_from(const fs::path& folder, const Chosen& chosen) {
  std::error_code error;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (chosen(entry.path().filename().string())) files.push_back(entry.path());
  }
  for (const fs::path& file : files) {
    if (fs::remove_all(file, error); error) {
      throw UsageError(fmt::format("cannot remove {}: {}", file.string(), error.message()));
    }
  }
}

}  // namespace

// The folder of checkpoints stays if anything else is in it.
void remove_run(const fs::path& folder) {
  // Somebody may train the run by hand. The lock is held until all is removed.
  const train::DirectoryLock locked(folder);
  if (locked.is_in_use()) {
    throw UsageError(folder.string() +
                     ": another run is writing there; wait for its end, and give the same command "
                     "again");
  }
  const fs::path checkpoints = folder / "checkpoints";
  remove_from(checkpoints, [](const std::string& name) { return name.starts_with("step-"); });
  std::error_code not_empty;
  fs::remove(checkpoints, not_empty);
  remove_from(folder, is_of_a_run);
}

// Two passes: the difference of large squares would lose digits.
std::optional<MeanAndDeviation> mean_and_deviation(std::span<const double> values) {
  if (values.empty()) return std::nullopt;
  const auto n = static_cast<double>(values.size());
  MeanAndDeviation result;
  for (const double value : values) result.mean += value / n;
  if (values.size() == 1) return result;
  double squares = 0.0;
  for (const double value : values) squares += (value - result.mean) * (value - result.mean);
  result.deviation = std::sqrt(squares / (n - 1));
  return result;
}

// fmax ignores an accuracy that is NaN.
double best_accuracy(const RunRecord& run) {
  double best = final_accuracy(run);
  for (const EpochRecord& epoch : run.epochs) best = std::fmax(best, epoch.accuracy);
  return best;
}

std::optional<double> seconds_to_accuracy(const RunRecord& run, double accuracy) {
  if (!is_whole(run)) return std::nullopt;
  double seconds = 0.0;
  for (const EpochRecord& epoch : run.epochs) {
    seconds += epoch.seconds;
    // Accuracy is known at the ends of epochs alone, so the time is that of the first epoch that
    // ends with it.
    if (epoch.accuracy >= accuracy) return seconds;
  }
  return std::nullopt;
}

// All means are over the runs that have completed, however many were asked for.
SchemeSummary summarise(std::string label, std::size_t seeds, Runs completed,
                        std::optional<double> accuracy) {
  SchemeSummary row{.label = std::move(label), .seeds = seeds, .done = completed.size()};
  row.final_accuracy = mean_and_deviation(of_each(completed, final_accuracy));
  row.best_accuracy = mean_and_deviation(of_each(completed, best_accuracy));
  row.global_reductions = mean_total(completed, &EpochRecord::global_reductions);
  row.local_reductions = mean_total(completed, &EpochRecord::local_reductions);
  row.bytes_sent = mean_total(completed, &EpochRecord::bytes_sent);
  row.global_bytes = mean_total(completed, &EpochRecord::global_bytes);
  row.local_bytes = mean_total(completed, &EpochRecord::local_bytes);
  row.seconds = mean_total(completed, &EpochRecord::seconds);
  std::vector<double> times;
  for (const RunRecord& run : completed) {
    const auto time = accuracy ? seconds_to_accuracy(run, *accuracy) : std::nullopt;
    if (time) times.push_back(*time);
  }
  row.reached = times.size();
  row.time_to_it = mean(times);
  return row;
}

// Two tables in one: a column with a heading is for people, with mean and deviation together; one
// with a name is for programs, with a number in each.
Table comparison_table(const TableHead& head, const std::vector<SchemeSummary>& rows) {
  using Row = SchemeSummary;
  // The same in every row.
  const auto always = [](const auto& value) { return [value](const Row&) { return value; }; };
  // People do not see a column in which no run has a number; programs always find it.
  const auto heading_if_any = [&](std::optional<double> Row::* member, const char* heading) {
    const bool any =
        std::ranges::any_of(rows, [&](const Row& row) { return (row.*member).has_value(); });
    return std::string(any ? heading : "");
  };
  TableOf table(rows);
  table.add({"scheme", "scheme", Align::left}, &Row::label)
      .add({.heading = "accuracy %"}, [](const Row& row) { return percent(row.final_accuracy); })
      .add({.name = "final_accuracy"}, mean_of(&Row::final_accuracy))
      .add({.name = "final_accuracy_deviation"}, deviation_of(&Row::final_accuracy))
      .add({.heading = "best %"}, [](const Row& row) { return percent(row.best_accuracy); })
      .add({.name = "best_accuracy"}, mean_of(&Row::best_accuracy))
      .add({.name = "best_accuracy_deviation"}, deviation_of(&Row::best_accuracy))
      .add({.heading = "seeds"},
           [](const Row& row) { return fmt::format("{}/{}", row.done, row.seeds); })
      .add({.name = "seeds_done"}, &Row::done)
      .add({.name = "seeds"}, &Row::seeds)
      .add({"global_reductions", "global reductions"}, &Row::global_reductions)
      .add({"local_reductions", "local reductions"}, &Row::local_reductions)
      .add({"bytes_sent", "bytes sent"}, &Row::bytes_sent)
      .add({"global_bytes", heading_if_any(&Row::global_bytes, "global bytes")}, &Row::global_bytes)
      .add({"local_bytes", heading_if_any(&Row::local_bytes, "local bytes")}, &Row::local_bytes)
      .add({.name = "accuracy_asked_for"}, always(head.accuracy))
      .add({.name = "seeds_that_reached_it"}, [&](const Row& row) {
        return head.accuracy ? std::optional(row.reached) : std::nullopt;
      });
  // The column's heading has the accuracy in it, so it is there only where one was asked for.
  if (head.accuracy) {
    table.add({.heading = fmt::format("s to {:g} %", *head.accuracy)}, time_to_it);
  }
  table.add({.name = "seconds_to_it"}, &Row::time_to_it)
      .add({.name = "seconds", .heading = "s", .decimals = 1}, &Row::seconds)
      .add({.name = "conditions"}, always(head.conditions));
  return table;
}

}  // namespace rondo::tools

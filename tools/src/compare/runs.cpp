// What runs left in their folders: their events, and whether they are the runs that are wanted.
//
// Folders are read each time and nothing is remembered besides them, so `rondo compare` can be
// interrupted at any moment. Damaged lines are ignored: a run that was killed may end with one.

#include "compare/runs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>
#include <utility>

#include "failure.hpp"
#include "files.hpp"

namespace rondo::tools {
namespace {

namespace fs = std::filesystem;

using Json = nlohmann::json;

// A value of the wrong type is treated as absent: files of other versions must not end the program.
std::optional<double> number(const Json& event, const char* name) {
  const auto found = event.find(name);
  if (found == event.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

std::int64_t count(const Json& event, const char* name) {
  const auto found = event.find(name);
  return found != event.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

std::string text(const Json& event, const char* name) {
  const auto found = event.find(name);
  return found != event.end() && found->is_string() ? found->get<std::string>() : std::string();
}

EpochRecord epoch_of(const Json& event) {
  return {// JSON has no NaN: it is written as null.
          .accuracy = number(event, "accuracy").value_or(std::numeric_limits<double>::quiet_NaN()),
          .seconds = number(event, "seconds").value_or(0.0),
          .global_reductions = number(event, "global_reductions").value_or(0.0),
          .local_reductions = number(event, "local_reductions").value_or(0.0),
          .bytes_sent = number(event, "bytes_sent").value_or(0.0),
          .global_bytes = number(event, "global_bytes"),
          .local_bytes = number(event, "local_bytes")};
}

// Adds what one line says. Other events are of no interest here.
void add(const Json& event, RunRecord& record) {
  const std::string kind = text(event, "event");
  if (kind == "start") {
    record.start = {.config = text(event, "config"),
                    .ranks = count(event, "ranks"),
                    .threads = count(event, "threads"),
                    .nodes = count(event, "nodes"),
                    .route = text(event, "route")};
  } else if (kind == "epoch") {
    record.epochs.push_back(epoch_of(event));
  } else if (kind == "end") {
    record.end_reason = text(event, "reason");
  }
}

using KeyText = std::pair<std::string, std::string>;  // "section.key" and its value

// What a run was asked for: its configuration tells what grid.plan = "auto" has chosen instead.
train::Experiment without_choice(train::Experiment recorded) {
  if (recorded.grid.plan != "chosen") return recorded;
  recorded.grid = {.plan = "auto", .batch_norm = recorded.grid.batch_norm};
  return recorded;
}

// As this version would write it, to be compared with `wanted`; as it is when this version cannot
// read it.
std::string rewritten(const std::string& toml, const train::Experiment& wanted) {
  try {
    const train::Experiment recorded = train::parse_experiment(toml, "recorded");
    return train::to_toml(wanted.grid.plan == "auto" ? without_choice(recorded) : recorded);
  } catch (const train::ConfigError&) {
    return toml;
  }
}

// Empty when they are the same.
std::string differing(const char* name, std::int64_t recorded, std::int64_t wanted) {
  if (recorded == wanted) return {};
  return fmt::format("{} is {}, would be {}", name, recorded, wanted);
}

// Ranks, threads and nodes are not part of a configuration, but change what a run computes.
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

// The files that a run may have written; all others are the user's.
bool is_of_a_run(const std::string& name) {
  constexpr std::array names = {"config.toml",       "find-rate.json", "metrics.jsonl",
                                "model.safetensors", "report.html",    "token_trace.jsonl"};
  return std::ranges::find(names, name) != names.end() ||
         (name.starts_with("flight-rank") && name.ends_with(".json")) ||
         (name.starts_with("profile") && name.ends_with(".json"));
}

}  // namespace

std::vector<std::pair<std::string, std::string>> keys_of(const std::string& toml) {
  std::vector<KeyText> keys;
  std::string section;
  std::istringstream lines(toml);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t equals = line.find(" = ");
    if (line.starts_with('[') && line.ends_with(']')) {
      section = line.substr(1, line.size() - 2);
    } else if (equals != std::string::npos) {
      keys.emplace_back(section + "." + line.substr(0, equals), line.substr(equals + 3));
    }
  }
  return keys;
}

bool RunRecord::completed() const {
  const bool ended = end_reason == "completed" || end_reason == "max_steps";
  return ended && start.has_value() && !epochs.empty();
}

void for_each_event(const std::filesystem::path& metrics,
                    const std::function<void(const nlohmann::json& event)>& visit,
                    const std::function<void(std::size_t line)>& damaged) {
  std::ifstream file(metrics);
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
}

RunRecord read_run_record(const std::filesystem::path& metrics) {
  RunRecord record;
  for_each_event(
      metrics, [&](const Json& event) { add(event, record); }, [](std::size_t /*line*/) {});
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

// metrics.jsonl is believed first, because it has the configuration with which the run began.
FoundRun find_run(const fs::path& folder, const Training& training) {
  FoundRun found;
  found.record = read_run_record(folder / "metrics.jsonl");
  if (found.record.start) {
    found.difference = difference_of(*found.record.start, training);
  } else if (fs::exists(folder / "config.toml")) {
    found.difference = first_difference(read_file(folder / "config.toml"), training.experiment);
  } else if (!fs::exists(folder / "metrics.jsonl")) {
    return found;
  }
  if (!found.difference.empty()) {
    found.state = RunState::different;
  } else {
    found.state = found.record.completed() ? RunState::completed : RunState::incomplete;
  }
  return found;
}

// Lists first and removes then: removing while listing may skip files.
void remove_run(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (is_of_a_run(entry.path().filename().string())) files.push_back(entry.path());
  }
  for (const fs::path& file : files) {
    if (fs::remove(file, error); error) {
      throw UsageError(fmt::format("cannot remove {}: {}", file.string(), error.message()));
    }
  }
}

}  // namespace rondo::tools

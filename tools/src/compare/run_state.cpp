#include "compare/run_state.hpp"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "exit_status.hpp"

namespace rondo::tools {
namespace {

namespace fs = std::filesystem;

using KeyText = std::pair<std::string, std::string>;  // "section.key" and its value

// `toml` is as to_toml() writes it: a key a line.
std::vector<KeyText> keys_of(const std::string& toml) {
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

std::string read_text(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string differing(const char* name, std::int64_t recorded, std::int64_t wanted) {
  if (recorded == wanted) return {};
  return fmt::format("{} is {}, would be {}", name, recorded, wanted);
}

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

bool is_of_a_run(const std::string& name) {
  return name == "config.toml" || name == "metrics.jsonl" ||
         (name.starts_with("flight-rank") && name.ends_with(".json"));
}

}  // namespace

std::string first_difference(const std::string& recorded, const train::Experiment& wanted) {
  const std::vector<KeyText> old_keys = keys_of(rewritten(recorded, wanted));
  const std::vector<KeyText> new_keys = keys_of(train::to_toml(wanted));
  for (const auto& [key, value] : new_keys) {
    std::string old = "not set";
    for (const auto& [old_key, old_value] : old_keys) {
      if (old_key == key) old = old_value;
    }
    if (old != value) return fmt::format("{} is {}, would be {}", key, old, value);
  }
  if (old_keys.size() == new_keys.size()) return {};
  return "it has keys that this version does not know";
}

FoundRun find_run(const fs::path& folder, const Training& training) {
  FoundRun found;
  found.record = read_run_record(folder / "metrics.jsonl");
  if (found.record.start) {
    found.difference = difference_of(*found.record.start, training);
  } else if (fs::exists(folder / "config.toml")) {
    found.difference = first_difference(read_text(folder / "config.toml"), training.experiment);
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

// Reads an Experiment from a file and settings, and writes it as TOML with every key. Settings are
// applied after the file, in their order, so that the last one counts. The text of to_toml() reads
// back to the same Experiment; a run's config.toml relies on that.

#include <rondo/train/experiment.hpp>
#include <rondo/train/variant.hpp>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "config/assignment.hpp"
#include "config/combinations.hpp"
#include "config/key.hpp"
#include "config/layer_list.hpp"

namespace rondo::train {
namespace {

std::string read_text(const std::filesystem::path& file) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) {
    fail_on_config(file.string(), "is a folder; give a configuration file");
  }
  // Streams keep no reason of a failure, but the system call behind them leaves one here.
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(stream), {}};
  if (!stream.is_open() || stream.bad()) {
    fail_on_config(file.string(), fmt::format("the configuration cannot be read ({})",
                                              std::generic_category().message(errno)));
  }
  return text;
}

// A required key is one that still has the empty value it begins with.
void expect_required(const Experiment& experiment, std::string_view name) {
  for (const Key& key : all_keys()) {
    if (!key.limits.required || key.get(experiment) != key.get(Experiment{})) continue;
    fail_on_config(name, fmt::format("missing key '{}'; set it to one of {}", key.full_name(),
                                     fmt::join(key.limits.names, ", ")));
  }
}

std::vector<Assignment> read_all(std::string_view text, std::string_view name,
                                 const std::vector<std::string>& settings) {
  std::vector<Assignment> assignments = read_assignments(text, name);
  for (const std::string& setting : settings) assignments.push_back(read_setting(setting));
  return assignments;
}

Experiment experiment_of(const std::vector<Assignment>& assignments) {
  Experiment experiment;
  for (const Assignment& assignment : assignments) apply(assignment, experiment);
  return experiment;
}

// A key that does nothing would hide that a run is not what its configuration says. The line is
// that of the assignment that counts, the last one.
void refuse_without_effect(const Experiment& experiment,
                           const std::vector<Assignment>& assignments) {
  for (const Key& key : all_keys()) {
    const std::string problem = complaint_about_effect(key, experiment);
    if (problem.empty()) continue;
    std::string_view where;
    for (const Assignment& assignment : assignments) {
      if (assignment.section == key.section && assignment.name == key.name) {
        where = assignment.where;
      }
    }
    fail_on_config(where, fmt::format("{}: {}", key.full_name(), problem));
  }
}

// These messages name keys; the line is not known any more, because a combination has several.
void check_keys_together(const Experiment& experiment, std::string_view name) {
  try {
    check_combinations(experiment);
  } catch (const ConfigError& error) {
    fail_on_config(name, error.what());
  }
}

}  // namespace

Experiment read_experiment(const std::filesystem::path& file,
                           const std::vector<std::string>& settings) {
  return parse_experiment(read_text(file), file.string(), settings);
}

Experiment parse_experiment(std::string_view text, std::string_view name,
                            const std::vector<std::string>& settings) {
  const std::vector<Assignment> assignments = read_all(text, name, settings);
  const Experiment experiment = experiment_of(assignments);
  refuse_without_effect(experiment, assignments);
  expect_required(experiment, name);
  // The layers of a custom model are put together once, so that a mistake is reported with its
  // line, and not later by a rank.
  check_layers(experiment, assignments, name);
  check_keys_together(experiment, name);
  return experiment;
}

Experiment parse_recorded(std::string_view text, std::string_view name,
                          const std::vector<std::string>& settings) {
  std::vector<Assignment> assignments = read_assignments(text, name);
  Experiment experiment;
  for (const Assignment& recorded : assignments) {
    apply(recorded, experiment, Names::of_any_program);
  }
  for (const std::string& setting : settings) {
    assignments.push_back(read_setting(setting));
    apply(assignments.back(), experiment);
  }
  // A program's own model has no layers here, whatever it is called.
  if (!experiment.model.layers.empty()) check_layers(experiment, assignments, name);
  check_keys_together(experiment, name);
  return experiment;
}

Experiment read_recorded(const std::filesystem::path& file,
                         const std::vector<std::string>& settings) {
  return parse_recorded(read_text(file), file.string(), settings);
}

std::vector<std::string> settings_of_variant(const std::filesystem::path& file,
                                             const std::vector<std::string>& settings) {
  std::vector<Assignment> assignments = read_assignments(read_text(file), file.string());
  refuse_without_effect(experiment_of(assignments), assignments);
  for (const std::string& setting : settings) assignments.push_back(read_setting(setting));
  const Experiment variant = experiment_of(assignments);
  std::vector<std::string> all;
  for (const Key& key : all_keys()) {
    // A key that the settings themselves give is given again behind this, and is refused.
    if (has_effect(key, variant)) continue;
    all.push_back(fmt::format("{}={}", key.full_name(), to_toml_value(key.get(Experiment{}))));
  }
  all.insert(all.end(), settings.begin(), settings.end());
  return all;
}

std::string to_toml(const Experiment& experiment) {
  std::string text;
  std::string_view section;
  for (const Key& key : all_keys()) {
    if (key.section != section) {
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", key.section);
      section = key.section;
    }
    text += fmt::format("{} = {}\n", key.name, to_toml_value(key.get(experiment)));
  }
  return text;
}

}  // namespace rondo::train

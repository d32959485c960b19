#include "config/assignment.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "config/key.hpp"
#include "config/layer_list.hpp"
#include "model/names.hpp"

namespace rondo::train {
namespace {

std::vector<std::string> section_names() {
  std::vector<std::string> names;
  for (const Key& key : all_keys()) {
    if (names.empty() || names.back() != key.section) names.emplace_back(key.section);
  }
  return names;
}

std::vector<std::string> key_names(std::string_view section) {
  std::vector<std::string> names;
  for (const Key& key : all_keys()) {
    if (key.section == section) names.emplace_back(key.name);
  }
  return names;
}

// "did you mean" another key: one of the section, or the same name in another section.
std::string suggest_key(const Assignment& assignment) {
  const std::vector<std::string> names = key_names(assignment.section);
  if (nearest(assignment.name, names).empty()) {
    for (const Key& key : all_keys()) {
      if (key.name == assignment.name) return fmt::format("did you mean '{}'?", key.full_name());
    }
  }
  return suggest(assignment.name, names);
}

const Key& find_key(const Assignment& assignment) {
  for (const Key& key : all_keys()) {
    if (key.section == assignment.section && key.name == assignment.name) return key;
  }
  fail_on_config(assignment.where, fmt::format("unknown key '{}.{}'; {}", assignment.section,
                                               assignment.name, suggest_key(assignment)));
}

// The value in the key's type: an integer will do where a number is expected.
Value converted(const Assignment& assignment, const Key& key) {
  const Value expected = key.get(Experiment{});
  if (!assignment.parts.empty() && std::holds_alternative<LayerList>(expected)) {
    return read_layers(assignment.parts);
  }
  if (assignment.usable) {
    if (assignment.value.index() == expected.index()) return assignment.value;
    const auto* integer = std::get_if<std::int64_t>(&assignment.value);
    if (integer != nullptr && std::holds_alternative<double>(expected)) {
      return static_cast<double>(*integer);
    }
    const auto* array = std::get_if<std::vector<std::int64_t>>(&assignment.value);
    const bool is_empty_array = array != nullptr && array->empty();
    if (is_empty_array && std::holds_alternative<LayerList>(expected)) return LayerList{};
    const auto* table = std::get_if<NumberTable>(&assignment.value);
    const bool is_empty_table = table != nullptr && table->empty();
    if (is_empty_table && std::holds_alternative<TextTable>(expected)) return TextTable{};
  }
  fail_on_config(assignment.where, fmt::format("{}: expected {}, found {}", key.full_name(),
                                               type_name(expected), assignment.found));
}

}  // namespace

void fail_on_config(std::string_view where, std::string_view problem) {
  throw ConfigError(printable(fmt::format("{}: {}", where, problem)));
}

void expect_section(std::string_view where, std::string_view section) {
  const std::vector<std::string> sections = section_names();
  if (std::ranges::find(sections, section) != sections.end()) return;
  fail_on_config(where,
                 fmt::format("unknown section '{}'; {}", section, suggest(section, sections)));
}

void apply(const Assignment& assignment, Experiment& experiment) {
  expect_section(assignment.where, assignment.section);
  const Key& key = find_key(assignment);
  const Value value = converted(assignment, key);
  const std::string problem = complaint(key.limits, value);
  if (!problem.empty()) {
    fail_on_config(assignment.where, fmt::format("{}: {}", key.full_name(), problem));
  }
  key.set(experiment, value);
}

}  // namespace rondo::train

// From TOML text to values of an Experiment. A configuration file, and every --set, becomes a list
// of assignments that know where they stand; then each is checked against its key and applied, so
// that every complaint names a line. This is the one source that knows the TOML library.
//
// Types are converted in two steps. value_of() finds the type that TOML gives the text; converted()
// brings it to the type of the key. The second one is needed because 1 may stand for 1.0, and
// because an empty array or table does not tell of what.

#include "config/assignment.hpp"

#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "config/key.hpp"
#include "config/layer_list.hpp"
#include "model/names.hpp"

namespace rondo::train {
namespace {

std::string line_of(std::string_view name, const toml::source_region& source) {
  return fmt::format("{}:{}", name, source.begin.line);
}

// Where things stand: at lines of a file, or all in one setting.
struct Location {
  std::string_view name;
  bool has_lines = true;

  [[nodiscard]] std::string at(const toml::source_region& source) const {
    return has_lines ? line_of(name, source) : std::string(name);
  }
};

// The name of a node's type, as in "expected an integer, found a string".
std::string found_type(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a number";
    case toml::node_type::boolean:
      return "true or false";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::table:
      return "a table";
    default:
      return "a date or time";
  }
}

// The elements as T; nothing where one of them is something else. A Value has arrays of one type.
// TOML allows mixed ones, which no key takes.
template <class T>
std::optional<Value> elements_as(const toml::array& array) {
  std::vector<T> values;
  for (const toml::node& element : array) {
    auto value = element.value_exact<T>();
    if (!value) return std::nullopt;
    values.push_back(*std::move(value));
  }
  return values;
}

// Integers stand for numbers, too.
std::optional<Value> numbers_of(const toml::array& array) {
  std::vector<double> numbers;
  for (const toml::node& element : array) {
    if (!element.is_number()) return std::nullopt;
    numbers.push_back(*element.value<double>());
  }
  return numbers;
}

std::optional<Value> value_of_array(const toml::array& array) {
  // The narrowest type that fits; an array of integers may still become one of numbers in
  // converted().
  if (auto integers = elements_as<std::int64_t>(array)) return integers;
  if (auto numbers = numbers_of(array)) return numbers;
  return elements_as<std::string>(array);
}

std::optional<std::int64_t> integer_of(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

bool stands_before(const toml::source_position& a, const toml::source_position& b) {
  return a.line != b.line ? a.line < b.line : a.column < b.column;
}

// Numbers may stand without quotes.
std::optional<std::string> text_of(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return text;
  if (const auto integer = node.value_exact<std::int64_t>()) return fmt::format("{}", *integer);
  if (const auto number = node.value_exact<double>()) return fmt::format("{}", *number);
  return std::nullopt;
}

// In the order of the file; the library's own is alphabetical.
std::optional<Value> value_of_text_table(const toml::table& table) {
  std::vector<std::pair<toml::source_position, TextTable::value_type>> entries;
  for (const auto& [key, node] : table) {
    const auto text = text_of(node);
    if (!text) return std::nullopt;
    entries.emplace_back(key.source().begin, TextTable::value_type(key.str(), *text));
  }
  std::ranges::sort(entries, stands_before, &decltype(entries)::value_type::first);
  TextTable texts;
  for (auto& [position, entry] : entries) texts.push_back(std::move(entry));
  return texts;
}

// A table of names and texts, or of integers and numbers; the first entry tells which.
std::optional<Value> value_of_table(const toml::table& table) {
  const bool has_names = !table.empty() && !integer_of(table.begin()->first.str());
  if (has_names || (!table.empty() && table.begin()->second.is_string())) {
    return value_of_text_table(table);
  }
  NumberTable numbers;
  for (const auto& [key, node] : table) {
    const auto name = integer_of(key.str());
    const auto number = node.value<double>();
    if (!name || !number || !node.is_number()) return std::nullopt;
    numbers[*name] = *number;
  }
  return numbers;
}

std::optional<Value> value_of(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (const auto integer = node.value_exact<std::int64_t>()) return *integer;
  if (const auto number = node.value_exact<double>()) return *number;
  if (const auto truth = node.value_exact<bool>()) return *truth;
  if (const toml::array* array = node.as_array()) return value_of_array(*array);
  if (const toml::table* table = node.as_table()) return value_of_table(*table);
  return std::nullopt;
}

std::vector<Assignment> parts_of(const toml::array& tables, const Location& location);

// A value that fits no type stays unusable here. It becomes an error when its key is known, which
// says what was expected.
Assignment make_assignment(const Location& location, const toml::source_region& source,
                           std::string_view section, std::string_view name,
                           const toml::node& node) {
  Assignment assignment{.where = location.at(source),
                        .section = std::string(section),
                        .name = std::string(name),
                        .found = found_type(node)};
  if (node.is_array_of_tables()) {
    assignment.parts = parts_of(*node.as_array(), location);
  } else if (auto value = value_of(node)) {
    assignment.value = *std::move(value);
    assignment.usable = true;
  }
  return assignment;
}

// [[model.layers]]: each table is a list of assignments of its own, read by layer_list.cpp.
std::vector<Assignment> parts_of(const toml::array& tables, const Location& location) {
  std::vector<Assignment> parts;
  for (const toml::node& node : tables) {
    Assignment table{.where = location.at(node.source())};
    for (const auto& [key, content] : *node.as_table()) {
      table.parts.push_back(make_assignment(location, key.source(), {}, key.str(), content));
    }
    parts.push_back(std::move(table));
  }
  return parts;
}

// A key before the first section, or `train = 1` instead of [train]: the message says where it
// belongs.
[[noreturn]] void fail_outside_of_sections(const std::string& where, std::string_view key,
                                           const toml::node& node) {
  std::string_view home;
  // Among equal names the first section's is proposed.
  for (const Key& known : all_keys()) {
    if (known.name == key && home.empty()) home = known.section;
    if (known.section == key) {
      fail_on_config(where, fmt::format("{}: expected a table, found {}; write [{}] above its keys",
                                        key, found_type(node), key));
    }
  }
  if (home.empty()) {
    fail_on_config(where,
                   fmt::format("unknown key '{}'; keys stand in sections like [train]", key));
  }
  fail_on_config(where, fmt::format("unknown key '{}'; did you mean '{}.{}'?", key, home, key));
}

toml::table parse(std::string_view text, std::string_view name) {
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    const toml::source_position at = error.source().begin;
    fail_on_config(fmt::format("{}:{}:{}", name, at.line, at.column),
                   fmt::format("not TOML: {}", error.description()));
  }
}

// The value of a setting, as TOML reads it; null when it is no TOML value.
std::optional<toml::table> parse_value(std::string_view text) {
  if (text.find_first_of("\r\n") != std::string_view::npos) return std::nullopt;
  try {
    toml::table table = toml::parse(fmt::format("value = {}", text));
    if (table.size() == 1) return table;
  } catch (const toml::parse_error&) {
  }
  return std::nullopt;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// So that `--set data.name=cifar10` needs no quotes, and `--set data.path=7` is a path.
bool expects_string(std::string_view full_name) {
  const Key* const key = find_key(full_name);
  return key != nullptr && std::holds_alternative<std::string>(key->get(Experiment{}));
}

// How much of `text` is a number, and whether that is too large or too small for a T.
template <class T>
std::from_chars_result number_in(std::string_view text) {
  T number = 0;
  return std::from_chars(text.data(), text.data() + text.size(), number);
}

// Says what a bare word is that somebody meant as a number; any other word is "a string".
std::string found_word(std::string_view text) {
  const bool has_sign = text.starts_with('+') || text.starts_with('-');
  const std::string_view digits = text.substr(has_sign ? 1 : 0);
  const auto [end, error] = number_in<double>(digits);
  const bool is_word = digits.empty() || std::isalpha(static_cast<unsigned char>(digits[0])) != 0;
  if (is_word || end != digits.data() + digits.size()) return "a string";
  const auto whole = number_in<std::int64_t>(digits);
  if (error != std::errc{} || (whole.ec != std::errc{} && whole.ptr == end)) {
    return fmt::format("'{}', which is too large or too small", text);
  }
  return fmt::format("'{}', which is no number in TOML; write it as in 10, 0.1 or 1e-3", text);
}

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

const Key& key_of(const Assignment& assignment) {
  const std::string full_name = fmt::format("{}.{}", assignment.section, assignment.name);
  if (const Key* const key = find_key(full_name)) return *key;
  fail_on_config(assignment.where,
                 fmt::format("unknown key '{}'; {}", full_name, suggest_key(assignment)));
}

// The value in the type of `expected`: an integer will do where a number is expected.
Value converted(const Assignment& assignment, const Value& expected, std::string_view label) {
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
    if (is_empty_array && std::holds_alternative<std::vector<std::string>>(expected)) {
      return std::vector<std::string>{};
    }
    if (array != nullptr && std::holds_alternative<std::vector<double>>(expected)) {
      return std::vector<double>(array->begin(), array->end());
    }
    const auto* table = std::get_if<NumberTable>(&assignment.value);
    const bool is_empty_table = table != nullptr && table->empty();
    if (is_empty_table && std::holds_alternative<TextTable>(expected)) return TextTable{};
  }
  // Nothing fitted. A number where an integer is expected is refused, too: 1.5 steps mean nothing.
  const bool is_table = std::holds_alternative<NumberTable>(expected);
  fail_on_config(assignment.where,
                 fmt::format("{}: expected {}{}, found {}", label, type_name(expected),
                             is_table ? ", as in { 1 = 4.0 }" : "", assignment.found));
}

}  // namespace

Value checked_value(const Assignment& assignment, const Value& expected, const Limits& limits,
                    std::string_view label) {
  Value value = converted(assignment, expected, label);
  const std::string problem = complaint(limits, value);
  if (!problem.empty()) fail_on_config(assignment.where, fmt::format("{}: {}", label, problem));
  return value;
}

std::vector<Assignment> read_assignments(std::string_view text, std::string_view name) {
  const Location location{.name = name};
  std::vector<Assignment> assignments;
  for (const auto& [section, content] : parse(text, name)) {
    const toml::table* keys = content.as_table();
    if (keys == nullptr) {
      fail_outside_of_sections(line_of(name, content.source()), section.str(), content);
    }
    expect_section(line_of(name, section.source()), section.str());
    for (const auto& [key, node] : *keys) {
      assignments.push_back(
          make_assignment(location, key.source(), section.str(), key.str(), node));
    }
  }
  return assignments;
}

Assignment read_setting(std::string_view setting) {
  const std::string where = fmt::format("--set {}", printable(setting));
  // The first one: the value may have more of them.
  const std::size_t equals = setting.find('=');
  const std::string_view full_name = trimmed(setting.substr(0, equals));
  const std::size_t dot = full_name.find('.');
  if (equals == std::string_view::npos || dot == std::string_view::npos) {
    fail_on_config(where, "is no setting; write --set SECTION.KEY=VALUE");
  }
  const std::string_view section = full_name.substr(0, dot);
  const std::string_view name = full_name.substr(dot + 1);
  const std::string_view text = trimmed(setting.substr(equals + 1));
  // These begin a TOML value whatever the key's type is; another text for a string key is the
  // string itself.
  const bool marked =
      !text.empty() && std::string_view("\"'[{").find(text[0]) != std::string_view::npos;
  std::optional<toml::table> value;
  if (marked || !expects_string(full_name)) value = parse_value(text);
  const Location location{.name = where, .has_lines = false};
  if (value) return make_assignment(location, {}, section, name, *value->get("value"));
  if (marked) fail_on_config(where, "the value is not TOML; close its quotes or brackets");
  // A bare word; as a quoted string it must still be one that TOML can hold.
  value = parse_value(to_toml_value(std::string(text)));
  if (!value) fail_on_config(where, "the value is not UTF-8 text");
  Assignment assignment = make_assignment(location, {}, section, name, *value->get("value"));
  assignment.found = found_word(text);
  return assignment;
}

void fail_on_config(std::string_view where, std::string_view problem) {
  // Texts of users go to terminals and logs: control characters are replaced.
  throw ConfigError(printable(fmt::format("{}: {}", where, problem)));
}

void expect_section(std::string_view where, std::string_view section) {
  const std::vector<std::string> sections = section_names();
  if (std::ranges::find(sections, section) != sections.end()) return;
  fail_on_config(where,
                 fmt::format("unknown section '{}'; {}", section, suggest(section, sections)));
}

void apply(const Assignment& assignment, Experiment& experiment, Names names) {
  expect_section(assignment.where, assignment.section);
  const Key& key = key_of(assignment);
  // Limits of single keys are checked here, those of several keys together in combinations.cpp.
  const bool any = key.limits.required && names == Names::of_any_program;
  key.set(experiment, checked_value(assignment, key.get(Experiment{}), any ? Limits{} : key.limits,
                                    key.full_name()));
}

}  // namespace rondo::train

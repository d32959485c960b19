// The values of configuration keys: how a value is written as TOML, what its type is called, and
// whether it lies within the limits of its key. Writer and Checker have one function for each type
// of Value, so that the compiler names what is missing when a type is added.

#include "config/key.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "config/layer_list.hpp"
#include "model/names.hpp"

namespace rondo::train {
namespace {

bool is_control(char character) {
  const auto code = static_cast<unsigned char>(character);
  return code < 0x20 || code == 0x7f;
}

// A basic string of TOML: quotes and backslashes are escaped, control characters are written as
// numbers.
std::string quoted_text(std::string_view text) {
  std::string out = "\"";
  for (const char character : text) {
    if (is_control(character)) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(character));
      continue;
    }
    if (character == '"' || character == '\\') out += '\\';
    out += character;
  }
  return out + '"';
}

// The shortest text that reads back to the same number, with a mark that it is no integer.
std::string float_text(double number) {
  std::array<char, 32> buffer = {};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number).ptr;
  std::string text(buffer.data(), end);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

// Writes the keys of a layer whose values are not the usual ones.
std::string layer_text(const Experiment::Layer& layer) {
  std::string text;
  for (const LayerKey& key : layer_keys()) {
    const Value value = key.get(layer);
    if (value == key.get(Experiment::Layer{})) continue;
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", key.name, to_toml_value(value));
  }
  return "{" + text + "}";
}

// Each function gives what value_of() of assignment.cpp reads as the same value.
struct Writer {
  std::string operator()(const std::string& value) const { return quoted_text(value); }
  std::string operator()(std::int64_t value) const { return fmt::format("{}", value); }
  std::string operator()(double value) const { return float_text(value); }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  template <class T>
  std::string operator()(const std::vector<T>& values) const {
    std::vector<std::string> texts;
    for (const T& value : values) texts.push_back((*this)(value));
    return fmt::format("[{}]", fmt::join(texts, ", "));
  }
  std::string operator()(const NumberTable& value) const { return table(value); }
  std::string operator()(const TextTable& value) const { return table(value); }
  std::string operator()(const LayerList& value) const {
    if (value.empty()) return "[]";
    std::string text = "[\n";
    for (const Experiment::Layer& layer : value) text += "  " + layer_text(layer) + ",\n";
    return text + "]";
  }

 private:
  template <class Table>
  [[nodiscard]] std::string table(const Table& entries) const {
    std::vector<std::string> texts;
    for (const auto& [key, value] : entries) {
      texts.push_back(fmt::format("{} = {}", (*this)(key), (*this)(value)));
    }
    return fmt::format("{{{}}}", fmt::join(texts, ", "));
  }
};

}  // namespace

std::string to_toml_value(const Value& value) { return std::visit(Writer{}, value); }

const char* type_name(const Value& value) {
  // In the order of Value's alternatives.
  constexpr std::array names = {"a string",
                                "an integer",
                                "a number",
                                "true or false",
                                "an array of integers",
                                "a table of integers and numbers",
                                "a table of names and strings",
                                "an array of tables",
                                "an array of numbers",
                                "an array of strings"};
  return names[value.index()];
}

std::string printable(std::string_view text) {
  std::string out(text);
  for (char& character : out) {
    if (is_control(character)) character = '?';
  }
  return out;
}

namespace {

// As in "0.5 is impossible; must be at least 1".
std::string describe(const Limits& limits) {
  if (std::isfinite(limits.least) && std::isfinite(limits.most)) {
    return fmt::format("must lie in {}{}, {}{}", limits.open_least ? '(' : '[', limits.least,
                       limits.most, limits.open_most ? ')' : ']');
  }
  if (std::isfinite(limits.least)) {
    return fmt::format("must be {} {}", limits.open_least ? "greater than" : "at least",
                       limits.least);
  }
  return "must be finite";
}

bool lies_within(double number, const Limits& limits) {
  const bool above = limits.open_least ? number > limits.least : number >= limits.least;
  const bool below = limits.open_most ? number < limits.most : number <= limits.most;
  return above && below;
}

// Each function gives what is wrong, without the key; empty if nothing is.
struct Checker {
  const Limits& limits;

  std::string operator()(const std::string& text) const {
    if (limits.names.empty()) {
      return limits.text_complaint == nullptr ? std::string{} : limits.text_complaint(text);
    }
    for (const std::string& name : limits.names) {
      if (name == text) return {};
    }
    return fmt::format("no such choice '{}'; {}", printable(text), suggest(text, limits.names));
  }

  std::string operator()(double number) const {
    if (!std::isfinite(number)) return fmt::format("{} is impossible; must be finite", number);
    return problem_of(number);
  }

  std::string operator()(std::int64_t number) const { return problem_of(number); }

  // Nothing can be wrong with these: both values are possible, and layers are checked one by one
  // when they are read.
  std::string operator()(bool) const { return {}; }

  std::string operator()(const LayerList&) const { return {}; }

  std::string operator()(const std::vector<double>& numbers) const { return first_of(numbers); }

  std::string operator()(const std::vector<std::string>& texts) const {
    for (const std::string& text : texts) {
      const std::string problem = (*this)(text);
      if (!problem.empty()) return fmt::format("\"{}\": {}", printable(text), problem);
    }
    return {};
  }

  std::string operator()(const std::vector<std::int64_t>& numbers) const {
    if (limits.length > 0 && !numbers.empty() && numbers.size() != limits.length) {
      return fmt::format("has {} numbers; must have {}, or none", numbers.size(), limits.length);
    }
    return first_of(numbers);
  }

  // Keys and numbers have limits of their own; both are named in the message.
  std::string operator()(const NumberTable& table) const {
    for (const auto& [key, number] : table) {
      if (key < limits.least_key) {
        return fmt::format("the key {} is impossible; must be at least {}", key, limits.least_key);
      }
      const std::string problem = (*this)(number);
      if (!problem.empty()) return fmt::format("{} = {}", key, problem);
      if (limits.whole && number != std::floor(number)) {
        return fmt::format("{} = {} is impossible; must be an integer", key, number);
      }
    }
    return {};
  }

  std::string operator()(const TextTable& table) const {
    if (limits.text_complaint == nullptr) return {};
    for (const auto& [name, text] : table) {
      const std::string problem = limits.text_complaint(text);
      if (!problem.empty()) {
        return fmt::format("\"{}\" = \"{}\": {}", printable(name), printable(text), problem);
      }
    }
    return {};
  }

 private:
  template <class Number>
  [[nodiscard]] std::string problem_of(Number number) const {
    if (lies_within(static_cast<double>(number), limits)) return {};
    return fmt::format("{} is impossible; {}", number, describe(limits));
  }

  template <class Number>
  [[nodiscard]] std::string first_of(const std::vector<Number>& numbers) const {
    for (const Number number : numbers) {
      const std::string problem = (*this)(number);
      if (!problem.empty()) return problem;
    }
    return {};
  }
};

}  // namespace

std::string Key::full_name() const { return fmt::format("{}.{}", section, name); }

std::string complaint(const Limits& limits, const Value& value) {
  return std::visit(Checker{limits}, value);
}

}  // namespace rondo::train

#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include <rondo/train/experiment.hpp>

namespace rondo::train {

// {integer = number, ...}
using NumberTable = std::map<std::int64_t, double>;

// [[model.layers]]
using LayerList = std::vector<Experiment::Layer>;

// A value of a key of the configuration. A table without entries is read as a NumberTable, an array
// without any as one of integers.
using Value =
    std::variant<std::string, std::int64_t, double, bool, std::vector<std::int64_t>, NumberTable,
                 TextTable, LayerList, std::vector<double>, std::vector<std::string>>;

// As TOML writes it, so that it reads back to the same value.
[[nodiscard]] std::string to_toml_value(const Value& value);

// The type that `value` has, in words: "an integer".
[[nodiscard]] const char* type_name(const Value& value);

// `text` on one line, with control characters made visible; for messages.
[[nodiscard]] std::string printable(std::string_view text);

// Which values of a key are possible. Numbers: from `least` to `most`; `open` leaves out that
// end. Arrays: so many numbers, or none; any number of them when `length` is 0. Tables: numbers
// within the limits, `whole` ones if so marked, under keys of at least `least_key`. Strings: one of
// `names`, if there are any. Strings, and those of arrays and tables: those about which
// `text_complaint` says nothing.
struct Limits {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool open_least = false;
  bool open_most = false;
  std::size_t length = 0;
  std::int64_t least_key = 0;
  bool whole = false;
  std::vector<std::string> names = {};
  std::string (*text_complaint)(std::string_view text) = nullptr;
  bool required = false;  // has no default: the file or a setting must give it
};

[[nodiscard]] inline Limits within(double least, double most) {
  return {.least = least, .most = most};
}
[[nodiscard]] inline Limits one_of(std::vector<std::string> names) {
  return {.names = std::move(names)};
}

// A key that is read only with some choices of another one, such as a scheme.
struct Condition {
  std::string_view chooser;  // full name of the key that chooses: "update.scheme"
  std::function<bool(std::string_view choice)> reads;
};

// One key of the configuration: its name, where its value lies, what it may be, and when it is
// read: with no conditions always, else when all of them hold.
struct Key {
  std::string_view section;
  std::string_view name;
  std::function<Value(const Experiment& experiment)> get;
  std::function<void(Experiment& experiment, const Value& value)> set;
  Limits limits;
  std::vector<Condition> conditions = {};

  // "section.name", as messages and --set write it.
  [[nodiscard]] std::string full_name() const;
};

// Every key that a configuration may have, in the order in which to_toml() writes them.
[[nodiscard]] std::span<const Key> all_keys();

// The key of this full name; null when there is none.
[[nodiscard]] const Key* find_key(std::string_view full_name);

// What is wrong with a value of a key's type; empty if nothing is.
[[nodiscard]] std::string complaint(const Limits& limits, const Value& value);

// Throws ConfigError that begins with the key.
template <typename... Values>
[[noreturn]] void refuse_key(std::string_view key, fmt::format_string<Values...> text,
                             Values&&... values) {
  throw ConfigError(fmt::format("{}: {}", key, fmt::format(text, std::forward<Values>(values)...)));
}

}  // namespace rondo::train

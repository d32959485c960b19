#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <rondo/train/experiment.hpp>

#include "config/key.hpp"

namespace rondo::train {

// A value that was given to a key, and where: what a configuration is before it is checked.
struct Assignment {
  std::string where = {};  // "FILE:LINE" or "--set SECTION.KEY=VALUE"
  std::string section = {};
  std::string name = {};
  std::string found = {};  // the value's type, in words
  Value value = {};        // meaningless when `usable` is false
  bool usable = false;     // is the value's type one that a key can have?
  // An array of tables has its tables here; a table of such an array has its keys.
  std::vector<Assignment> parts = {};
};

// "WHERE: problem", on one line.
[[noreturn]] void fail_on_config(std::string_view where, std::string_view problem);

// All keys of a TOML document. Throws ConfigError where it is no TOML, or where a key stands
// outside of a section.
[[nodiscard]] std::vector<Assignment> read_assignments(std::string_view text,
                                                       std::string_view name);

// One "section.key=value".
[[nodiscard]] Assignment read_setting(std::string_view setting);

// The value in the type of `expected`. Fails with `label` in front of the problem where it has
// another type, or does not lie within `limits`.
[[nodiscard]] Value checked_value(const Assignment& assignment, const Value& expected,
                                  const Limits& limits, std::string_view label);

// Fails when there is no such section.
void expect_section(std::string_view where, std::string_view section);

// Which names data and models may have: those that a configuration can choose, or any, as where a
// program brought its own.
enum class Names { of_choices, of_any_program };

// Checks the assignment and gives its value to `experiment`.
void apply(const Assignment& assignment, Experiment& experiment, Names names = Names::of_choices);

}  // namespace rondo::train

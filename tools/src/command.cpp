// The only place besides main.cpp that knows CLI11, whose header takes seconds to compile: each
// function here stands for one of its features that the program uses, and nothing more.
//
// A choice is checked as a string and handed on as an index, so that help and messages show names
// only, and the variable gets a typed value.

#include "command.hpp"

#include <CLI/CLI.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <sstream>
#include <system_error>
#include <type_traits>

#include "failure.hpp"
#include "options.hpp"

namespace rondo::tools {
namespace {

// Marks the check that holds the names of a choice.
constexpr const char* choice_mark = "choice";

// What is in no group is not shown.
template <class Shown>
bool is_hidden(const Shown& shown) {
  return shown.get_group().empty();
}

// CLI11 writes all names as "{text,json}".
std::vector<std::string> choices_of(CLI::Option& option) {
  std::vector<std::string> names;
  try {
    const std::string text = option.get_validator(choice_mark)->get_description();
    std::istringstream parts(text.substr(1, text.size() - 2));
    for (std::string name; std::getline(parts, name, ',');) names.push_back(name);
  } catch (const CLI::OptionNotFound&) {
    // It takes any value.
  }
  return names;
}

// What is wrong with the text of a number; empty: nothing. `must` says what it must be, and is so
// where `holds`.
template <class Holds>
std::string problem_of_number(const std::string& text, const std::string& must, Holds holds) {
  double number = 0.0;
  if (!CLI::detail::lexical_cast(text, number)) return fmt::format("'{}' is no number", text);
  if (!std::isfinite(number)) return fmt::format("{} is impossible: must be finite", text);
  return holds(number) ? std::string() : fmt::format("{} is impossible: must be {}", text, must);
}

template <class T>
constexpr bool holds_integers =
    std::is_same_v<T, int> || std::is_same_v<T, std::int64_t> ||
    std::is_same_v<T, std::optional<int>> || std::is_same_v<T, std::vector<std::int64_t>>;

// CLI11 takes "010" for an octal number, as C does. Other texts stay as they are.
std::string without_leading_zeros(std::string text) {
  const std::size_t begin = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  const std::size_t digits = text.find_first_not_of('0', begin);
  const bool decimal = text.find_first_not_of("0123456789", begin) == std::string::npos;
  if (decimal && digits != std::string::npos) text.erase(begin, digits - begin);
  return text;
}

// "-n,--ranks" of "-n,--ranks N".
std::string names_in(const std::string& declared) { return declared.substr(0, declared.find(' ')); }

Option with_value(CLI::Option& option, const std::string& declared) {
  const std::size_t blank = declared.find(' ');
  return blank == std::string::npos ? Option(option)
                                    : Option(option).value(declared.substr(blank + 1));
}

OptionDescription describe_option(CLI::Option& option) {
  OptionDescription result;
  for (const std::string& name : option.get_snames()) result.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) result.names.push_back("--" + name);
  // Behind a colon stands what the checks have added.
  const std::string type = option.get_type_name();
  if (option.get_type_size() != 0) result.value = type.substr(0, type.find(':'));
  result.text = option.get_description();
  result.otherwise = option.get_default_str();
  result.choices = choices_of(option);
  result.required = option.get_required();
  result.several = option.get_expected_max() > 1;
  return result;
}

CommandDescription describe_command(CLI::App& app, const std::string& parent) {
  CommandDescription result;
  result.name = parent.empty() ? app.get_name() : parent + " " + app.get_name();
  result.summary = app.get_description();
  result.footer = app.get_footer();
  for (CLI::Option* const option : app.get_options({})) {
    if (is_hidden(*option)) continue;
    OptionDescription description = describe_option(*option);
    auto& list = description.names.empty() ? result.arguments : result.options;
    list.push_back(std::move(description));
  }
  for (CLI::App* const command : app.get_subcommands({})) {
    if (!is_hidden(*command)) result.commands.push_back(describe_command(*command, result.name));
  }
  return result;
}

}  // namespace

// The conditions on an option's value. CLI11 checks in the order of these calls and reports the
// first thing that is wrong, with the option's name.

// A variable of a shell that is not set gives an empty text.
Option& Option::value(const std::string& name) {
  option_->type_name(name);
  return check([](const std::string& text) {
    return text.empty() ? "is empty; give a value, or leave the option out" : "";
  });
}

Option& Option::required() {
  option_->required();
  return *this;
}

// The variable's value so far is shown as the default.
Option& Option::with_default() {
  option_->capture_default_str();
  return *this;
}

// For a default that is decided later, or that the variable does not show.
Option& Option::with_default(const std::string& text) {
  option_->default_str(text);
  return *this;
}

Option& Option::range(int least, int most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

Option& Option::range(double least, double most) {
  return check([=](const std::string& text) {
    return problem_of_number(text, fmt::format("from {:g} to {:g}", least, most),
                             [=](double number) { return number >= least && number <= most; });
  });
}

Option& Option::positive() {
  return check([](const std::string& text) {
    return problem_of_number(text, "greater than 0", [](double number) { return number > 0.0; });
  });
}

Option& Option::hidden() {
  option_->group("");
  return *this;
}

// CLI11 takes a number that is too large for the largest one.
Option& Option::not_negative() {
  return check([](const std::string& text) {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc{} && end == text.data() + text.size() && number >= 0) {
      return std::string();
    }
    return fmt::format("{} is impossible: must be a whole number from 0 to {}", text,
                       std::numeric_limits<std::int64_t>::max());
  });
}

Option& Option::check(std::function<std::string(const std::string& value)> problem) {
  option_->check(std::move(problem));
  return *this;
}

// Without this CLI11 would take a positional behind the option for a second value.
Option& Option::repeatable() {
  option_->take_all()->expected(1)->allow_extra_args(false);
  return *this;
}

Option& Option::separated_by(char separator) {
  // "1,5,7" is one argument.
  option_->delimiter(separator)->allow_extra_args(false);
  return *this;
}

// Both are about which options stand together on a line, whatever their values.

Option& Option::excludes(const Option& other) {
  option_->excludes(other.option_);
  return *this;
}

Option& Option::needs(const Option& other) {
  option_->needs(other.option_);
  return *this;
}

// All commands of a program share what was typed and the exit status.
Command Command::add(const std::string& name, const std::string& summary) {
  return {*app_->add_subcommand(name, summary), *line_, *status_};
}

// CLI11 calls it after the whole command line was parsed, for the innermost command.
void Command::does(Action action) {
  app_->callback(
      [action = std::move(action), line = line_, status = status_] { *status = action(*line); });
}

// `rondo bench` alone does nothing: it must be said what to measure.
void Command::wants_subcommand() { app_->require_subcommand(1); }

void Command::alias(const std::string& name) { app_->alias(name); }

void Command::footer(const std::string& text) { app_->footer(text); }

void Command::hidden() { app_->group(""); }

CommandDescription Command::describe() const { return describe_command(*app_, {}); }

// A vector takes the values of an option that is repeated, or the rest of the positionals; an
// optional stays empty when nothing was said.
template <class T>
Option Command::option(const std::string& names, T& variable, const std::string& text) {
  CLI::Option* const option = app_->add_option(names_in(names), variable, text);
  // Before all checks, which read the number as well.
  if constexpr (holds_integers<T>) option->transform(without_leading_zeros);
  return with_value(*option, names);
}

// All types that options have.
template Option Command::option(const std::string&, int&, const std::string&);
template Option Command::option(const std::string&, std::int64_t&, const std::string&);
template Option Command::option(const std::string&, double&, const std::string&);
template Option Command::option(const std::string&, std::string&, const std::string&);
template Option Command::option(const std::string&, std::filesystem::path&, const std::string&);
template Option Command::option(const std::string&, std::optional<int>&, const std::string&);
template Option Command::option(const std::string&, std::optional<double>&, const std::string&);
template Option Command::option(const std::string&, std::optional<std::string>&,
                                const std::string&);
template Option Command::option(const std::string&, std::vector<std::string>&, const std::string&);
template Option Command::option(const std::string&, std::vector<std::int64_t>&, const std::string&);

// True when it is given; it takes no value.
Option Command::flag(const std::string& names, bool& variable, const std::string& text) {
  return Option(*app_->add_flag(names, variable, text));
}

// Help lists the names in their order, and the default among them.
Option Command::choice(const std::string& names, std::vector<std::string> known,
                       const std::string& otherwise, const std::string& text,
                       std::function<void(std::size_t index)> choose) {
  CLI::Option* const option = app_->add_option_function<std::string>(
      names_in(names),
      [known, choose = std::move(choose)](const std::string& name) {
        choose(static_cast<std::size_t>(std::ranges::find(known, name) - known.begin()));
      },
      text);
  option->check(CLI::IsMember(std::move(known)), choice_mark);
  if (!otherwise.empty()) option->default_str(otherwise);
  return with_value(*option, names);
}

// Checked while parsing, so that a mistake is reported like any other of the command line.
Option Command::bytes(const std::string& names, std::function<void(std::uint64_t)> set,
                      const std::string& text) {
  const auto problem = [](const std::string& value) {
    try {
      static_cast<void>(parse_bytes(value));
      return std::string();
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
  };
  CLI::Option* const option = app_->add_option_function<std::string>(
      names_in(names),
      [set = std::move(set)](const std::string& value) { set(parse_bytes(value)); }, text);
  option->check(CLI::Validator(problem, "64K, 64KB, 64KiB, ..."));
  return with_value(*option, names);
}

}  // namespace rondo::tools

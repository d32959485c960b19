#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace rondo::tools {

/// The arguments of this process, without its name.
struct CommandLine {
  std::vector<std::string> own = {};  ///< what this program reads
  std::vector<std::string> behind_dashes =
      {};  ///< of `run`: the program that it starts; or of `complete`
};

/// Names that an option accepts and what they mean, in the order in which help lists them.
template <class T>
using Choices = std::vector<std::pair<std::string, T>>;

/// "auto, spin, yield, block"
template <class T>
[[nodiscard]] std::string names_of(const Choices<T>& choices) {
  std::string text;
  for (const auto& [name, value] : choices) text += (text.empty() ? "" : ", ") + name;
  return text;
}

/// The name of `value`, which must be one of `choices`.
template <class T>
[[nodiscard]] std::string name_of(const Choices<T>& choices, const T& value) {
  for (const auto& [name, known] : choices) {
    if (known == value) return name;
  }
  return {};
}

/// One option of a command. Returned by Command, to say more about it.
class Option {
 public:
  explicit Option(CLI::Option& option) noexcept : option_(&option) {}

  /// The value, `name` in help. An empty one is refused, as of a script whose variable is not set.
  Option& value(const std::string& name);
  Option& required();
  /// Help shows the variable's value as the default; or `text` where the variable has none.
  Option& with_default();
  Option& with_default(const std::string& text);
  Option& range(int least, int most);
  Option& range(double least, double most);
  Option& positive();
  Option& not_negative();
  /// `problem` returns what is wrong with a value; empty: nothing.
  Option& check(std::function<std::string(const std::string& value)> problem);
  /// May be given several times, with one value each: a positional may stand behind it.
  Option& repeatable();
  /// One argument holds several values.
  Option& separated_by(char separator);
  /// Help does not show it: one part of the program starts another with it.
  Option& hidden();
  Option& excludes(const Option& other);
  Option& needs(const Option& other);

 private:
  CLI::Option* option_;
};

/// An option, or an argument that stands for itself, as the program describes it.
struct OptionDescription {
  std::vector<std::string> names = {};  ///< "-n", "--ranks"; none: it is known by its place
  std::string value = {};               ///< what help calls its value; empty: it takes none
  std::string text = {};
  std::string otherwise = {};             ///< its default; empty: none, or the text says it
  std::vector<std::string> choices = {};  ///< all values; empty: any
  bool required = false;
  bool several = false;  ///< takes several values, or may be repeated
};

/// A command with all that is below it, without what is hidden.
struct CommandDescription {
  std::string name = {};  ///< from the program's on: "rondo bench allreduce"
  std::string summary = {};
  std::string footer = {};
  std::vector<OptionDescription> options = {};    ///< with names
  std::vector<OptionDescription> arguments = {};  ///< without
  std::vector<CommandDescription> commands = {};
};

/// One command of the program: its options, and what it does. All other sources know CLI11 only
/// through this class and Option.
///
/// Variables that options write to must outlive the parsing; a command's action usually owns them.
class Command {
 public:
  /// Returns the exit status.
  using Action = std::function<int(const CommandLine& line)>;

  /// `line` is handed to the action, whose status goes to `status`; both outlive the parsing.
  Command(CLI::App& app, const CommandLine& line, int& status) noexcept
      : app_(&app), line_(&line), status_(&status) {}

  /// A subcommand.
  Command add(const std::string& name, const std::string& summary);
  /// Runs when the command line has chosen this command.
  void does(Action action);
  /// One of the subcommands must be given.
  void wants_subcommand();
  /// Another name for this command.
  void alias(const std::string& name);
  /// Lines below the options in help.
  void footer(const std::string& text);
  /// Neither help nor what describes the program shows it.
  void hidden();
  /// What was added to it so far.
  [[nodiscard]] CommandDescription describe() const;

  /// `names` is as in "-n,--ranks N", or "config CONFIG.toml" for a positional: behind the blank,
  /// if there is one, stands the name of the value, as for Option::value(). The same below.
  template <class T>
  Option option(const std::string& names, T& variable, const std::string& text);
  Option flag(const std::string& names, bool& variable, const std::string& text);
  /// One of several names; help shows them all, and the variable's value as the default.
  template <class T>
  Option choice(const std::string& names, T& variable, const Choices<T>& choices,
                const std::string& text) {
    std::vector<std::string> known;
    for (const auto& [name, value] : choices) known.push_back(name);
    return choice(names, known, name_of(choices, variable), text,
                  [&variable, choices](std::size_t index) { variable = choices[index].second; });
  }
  /// A number of bytes; see parse_bytes().
  template <class T>
    requires std::is_constructible_v<T, std::uint64_t>
  Option bytes(const std::string& names, T& variable, const std::string& text) {
    return bytes(names, [&variable](std::uint64_t number) { variable = number; }, text);
  }

 private:
  Option choice(const std::string& names, std::vector<std::string> known,
                const std::string& otherwise, const std::string& text,
                std::function<void(std::size_t index)> choose);
  Option bytes(const std::string& names, std::function<void(std::uint64_t)> set,
               const std::string& text);

  CLI::App* app_;
  const CommandLine* line_;
  int* status_;
};

// One function per subcommand, each in a file of its name or of its subject: it adds the subcommand
// to `root`.
void add_run(Command& root);
void add_train(Command& root);
void add_compare(Command& root);
void add_eval(Command& root);
void add_predict(Command& root);
void add_export(Command& root);
void add_inspect(Command& root);
void add_init(Command& root);
void add_config(Command& root);
void add_plan(Command& root);
void add_bench(Command& root);
void add_info(Command& root);
void add_doctor(Command& root);
/// Added last: it describes all others.
void add_generate(Command& root);
void add_report(Command& root);
void add_find_rate(Command& root);

// The subcommands of `rondo bench` that measure no single operation.
void add_bench_tune(Command& bench);
void add_bench_model(Command& bench);
void add_bench_bootstrap(Command& bench);
void add_bench_data(Command& bench);

}  // namespace rondo::tools

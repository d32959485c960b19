// The words that may come next on a command line. The scripts of the shells (tools/completion) ask
// the program, so all of them offer the same, and none has a list of its own.

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "generate/generate.hpp"

namespace rondo::tools {
namespace {

using Offers = std::vector<std::string>;

// The arguments behind "--" on the command line are another program's.
constexpr std::string_view starts_programs = "rondo run";

constexpr const char* files = "(files)";
constexpr const char* folders = "(folders)";

std::string offer(std::string word, std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return std::move(word) + "\t" + text;
}

// By the names that help uses: a new option that takes a file says so by its value.
Offers values_of(const OptionDescription& option) {
  constexpr std::array<std::string_view, 6> names = {"FILE", "CONFIG.toml", "RUN",
                                                     "PATH", "IMAGE",       "MANIFEST"};
  if (!option.choices.empty()) return option.choices;
  if (option.value == "DIR") return {folders};
  const bool file = std::ranges::any_of(
      names, [&](std::string_view name) { return option.value.find(name) != std::string::npos; });
  return file ? Offers{files} : Offers{};
}

Offers options_of(const CommandDescription& command) {
  Offers offers;
  for (const OptionDescription& option : command.options) {
    for (const std::string& name : option.names) offers.push_back(offer(name, option.text));
  }
  return offers;
}

// Subcommands, or the values of the first argument that has any.
Offers arguments_of(const CommandDescription& command) {
  if (command.name == starts_programs) return {files};
  Offers offers;
  for (const CommandDescription& below : command.commands) {
    offers.push_back(offer(below.name.substr(below.name.rfind(' ') + 1), below.summary));
  }
  for (const OptionDescription& argument : command.arguments) {
    if (offers.empty()) offers = values_of(argument);
  }
  return offers;
}

// Goes down by the first of `words` and leaves out what it has passed.
const CommandDescription& command_of(const CommandDescription& program, Offers& words) {
  const auto below = std::ranges::find(program.commands, program.name + " " + words.front(),
                                       &CommandDescription::name);
  if (words.size() < 2 || below == program.commands.end()) return program;
  words.erase(words.begin());
  return command_of(*below, words);
}

}  // namespace

Offers offers_for(const CommandDescription& program, Offers words) {
  if (words.empty()) words.emplace_back();
  // bash takes the "=" of --option=value for a word of its own; other shells do not.
  if (words.back() == "=") words.back().clear();
  if (words.size() > 1 && words[words.size() - 2] == "=") words.erase(words.end() - 2);
  std::string before;
  const std::size_t equals = words.back().find('=');
  if (words.back().starts_with("--") && equals != std::string::npos) {
    before = words.back().substr(0, equals + 1);
    words.back().resize(equals);
    words.emplace_back();
  }
  const CommandDescription& command = command_of(program, words);
  const std::string last = std::exchange(words.back(), {});
  if (command.name == starts_programs && std::ranges::count(words, "--") > 0) return {files};
  for (const OptionDescription& option : command.options) {
    const bool precedes = words.size() > 1 && !option.value.empty() &&
                          std::ranges::count(option.names, words[words.size() - 2]) > 0;
    if (!precedes) continue;
    Offers offers = values_of(option);
    for (std::string& value : offers) {
      if (!value.starts_with('(')) value.insert(0, before);
    }
    return offers;
  }
  return last.starts_with('-') ? options_of(command) : arguments_of(command);
}

}  // namespace rondo::tools

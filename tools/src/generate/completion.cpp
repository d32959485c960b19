// Completion of command lines in bash, zsh and fish, made of the description of the program.
//
// Each shell gets what it can do best: bash a table of words and one function that looks things up
// in it, zsh a function of _arguments for each command, fish a line for each option. All three know
// the same: subcommands, options, choices, and whether a value is a file or a folder.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "generate/generate.hpp"

namespace rondo::tools {
namespace {

// The arguments behind "--" on the command line are another program's.
constexpr std::string_view starts_programs = "rondo run";

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size()) {
    text.replace(at, what.size(), by);
  }
  return text;
}

std::string last_word(const std::string& name) { return name.substr(name.rfind(' ') + 1); }

// For a function of a shell: "_rondo_bench_allreduce".
std::string function_name(const CommandDescription& command) {
  return "_" + replaced(replaced(command.name, " ", "_"), "-", "_");
}

// Calls `use` for the command and all below it.
template <class Use>
void for_each(const CommandDescription& command, const Use& use) {
  use(command);
  for (const CommandDescription& below : command.commands) for_each(below, use);
}

// The completion of a command's arguments: that of the first argument that has one.
Completion arguments_of(const CommandDescription& command) {
  if (command.name == starts_programs) return Completion::files;
  for (const OptionDescription& argument : command.arguments) {
    if (completion_of(argument) != Completion::nothing) return completion_of(argument);
  }
  return Completion::nothing;
}

// bash

// "(files)" and "(folders)" cannot be choices.
std::string bash_values(const OptionDescription& option) {
  if (!option.choices.empty()) return fmt::format("{}", fmt::join(option.choices, " "));
  if (completion_of(option) == Completion::files) return "(files)";
  return completion_of(option) == Completion::folders ? "(folders)" : "(any)";
}

std::string bash_arguments(const CommandDescription& command) {
  std::vector<std::string> words;
  for (const CommandDescription& below : command.commands) words.push_back(last_word(below.name));
  for (const OptionDescription& argument : command.arguments) {
    words.insert(words.end(), argument.choices.begin(), argument.choices.end());
  }
  if (arguments_of(command) == Completion::files) words.emplace_back("(files)");
  if (arguments_of(command) == Completion::folders) words.emplace_back("(folders)");
  return fmt::format("{}", fmt::join(words, " "));
}

constexpr std::string_view bash_function = R"bash(
# Completes the word "$2" by the words of "$1"; those in parentheses stand for more.
_rondo_reply() {
  local one plain=()
  for one in $1; do
    case $one in
      '(files)')
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$2")
        ;;
      '(folders)')
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -d -- "$2")
        ;;
      '(any)') ;;
      *) plain+=("$one") ;;
    esac
  done
  mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -W "${plain[*]}" -- "$2")
}

_rondo() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command=rondo i
  COMPREPLY=()
  # bash takes the "=" of --option=value for a word of its own.
  if [[ $word == = ]]; then
    word=
  elif [[ $before == = ]]; then
    before=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    [[ " $(_rondo_arguments "$command") " == *" ${COMP_WORDS[i]} "* ]] || break
    [[ -n $(_rondo_options "$command ${COMP_WORDS[i]}") ]] || break
    command+=" ${COMP_WORDS[i]}"
  done
  for (( ; i < COMP_CWORD; i++)); do
    # The program behind "--", and what belongs to it.
    [[ $command == 'rondo run' && ${COMP_WORDS[i]} == -- ]] && command=--
  done
  if [[ $command == -- ]]; then
    _rondo_reply '(files)' "$word"
  elif [[ -n $(_rondo_values "$command" "$before") ]]; then
    _rondo_reply "$(_rondo_values "$command" "$before")" "$word"
  elif [[ $word == -* ]]; then
    _rondo_reply "$(_rondo_options "$command")" "$word"
  else
    _rondo_reply "$(_rondo_arguments "$command")" "$word"
  fi
}

complete -F _rondo rondo
)bash";

// zsh

// Within the single quotes of a specification.
std::string zsh_text(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\'') {
      result += "'\\''";
    } else {
      if (std::string_view("[]:\\").find(c) != std::string_view::npos) result += '\\';
      result += c;
    }
  }
  return result;
}

std::string zsh_action(const OptionDescription& option) {
  if (!option.choices.empty()) return fmt::format("({})", fmt::join(option.choices, " "));
  if (completion_of(option) == Completion::files) return "_files";
  return completion_of(option) == Completion::folders ? "_files -/" : " ";
}

// '(-n --ranks)'{-n,--ranks}'[Ranks to start]:N: '
std::string zsh_option(const OptionDescription& option) {
  const std::string value =
      option.value.empty() ? "" : fmt::format(":{}:{}", zsh_text(option.value), zsh_action(option));
  const std::string rest = fmt::format("[{}]{}", zsh_text(option.text), value);
  const std::string star = option.several ? "*" : "";
  if (option.names.size() == 1) return fmt::format("'{}{}{}'", star, option.names.front(), rest);
  const std::string others =
      option.several ? "'*'" : fmt::format("'({})'", fmt::join(option.names, " "));
  return fmt::format("{}{{{}}}'{}'", others, fmt::join(option.names, ","), rest);
}

std::string zsh_argument(const OptionDescription& argument) {
  return fmt::format("'{}:{}:{}'", argument.several ? "*" : "", zsh_text(argument.value),
                     zsh_action(argument));
}

// The function of a command that has commands below it.
std::string zsh_dispatch(const CommandDescription& command) {
  std::string names;
  std::string cases;
  for (const CommandDescription& below : command.commands) {
    const std::string word = last_word(below.name);
    names += fmt::format("        '{}:{}'\n", zsh_text(word), zsh_text(below.summary));
    cases += fmt::format("        {}) {} ;;\n", word, function_name(below));
  }
  return fmt::format(
      "    '1:command:->command' '*::arguments:->arguments'\n"
      "  case $state in\n"
      "    command)\n"
      "      commands=(\n{}      )\n"
      "      _describe command commands\n"
      "      ;;\n"
      "    arguments)\n"
      "      case $words[1] in\n{}      esac\n"
      "      ;;\n"
      "  esac\n",
      names, cases);
}

std::string zsh_function(const CommandDescription& command) {
  std::string text = fmt::format("{}() {{\n", function_name(command));
  const bool has_commands = !command.commands.empty();
  if (has_commands) text += "  local curcontext=$curcontext state line\n  local -a commands\n";
  text += has_commands ? "  _arguments -C \\\n" : "  _arguments -s -S \\\n";
  for (const OptionDescription& option : command.options) {
    text += "    " + zsh_option(option) + " \\\n";
  }
  if (has_commands) return text + zsh_dispatch(command) + "}\n";
  for (const OptionDescription& argument : command.arguments) {
    text += "    " + zsh_argument(argument) + " \\\n";
  }
  if (command.name == starts_programs) text += "    '*::program:_normal' \\\n";
  // Ends the last line.
  return text + "    && return\n}\n";
}

// fish

std::string fish_text(const std::string& text) {
  return "'" + replaced(replaced(text, "\\", "\\\\"), "'", "\\'") + "'";
}

// True on a command line that has come to this command, and to none below it.
std::string fish_condition(const CommandDescription& command) {
  std::vector<std::string> parts;
  std::string_view rest = command.name;
  rest.remove_prefix(std::min(rest.size(), rest.find(' ')));
  while (!rest.empty()) {
    rest.remove_prefix(1);
    const std::size_t end = std::min(rest.size(), rest.find(' '));
    parts.push_back(fmt::format("__fish_seen_subcommand_from {}", rest.substr(0, end)));
    rest.remove_prefix(end);
  }
  if (!command.commands.empty()) {
    std::vector<std::string> below;
    for (const auto& one : command.commands) below.push_back(last_word(one.name));
    parts.push_back(fmt::format("not __fish_seen_subcommand_from {}", fmt::join(below, " ")));
  }
  return fmt::format("{}", fmt::join(parts, "; and "));
}

std::string fish_values(const OptionDescription& option) {
  if (option.value.empty()) return "";
  if (!option.choices.empty()) {
    return fmt::format(" -x -a {}", fish_text(fmt::format("{}", fmt::join(option.choices, " "))));
  }
  if (completion_of(option) == Completion::files) return " -r -F";
  return completion_of(option) == Completion::folders ? " -x -a '(__fish_complete_directories)'"
                                                      : " -x";
}

void add_fish_lines(const CommandDescription& command, std::string& text) {
  const std::string start = "complete -c rondo -n " + fish_text(fish_condition(command));
  for (const CommandDescription& below : command.commands) {
    text += fmt::format("{} -a {} -d {}\n", start, last_word(below.name), fish_text(below.summary));
  }
  for (const OptionDescription& option : command.options) {
    text += start;
    for (const std::string& name : option.names) {
      text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    }
    text += fmt::format("{} -d {}\n", fish_values(option), fish_text(option.text));
  }
  const Completion arguments = arguments_of(command);
  if (arguments == Completion::files) text += start + " -F\n";
  if (arguments == Completion::folders) text += start + " -a '(__fish_complete_directories)'\n";
}

}  // namespace

// By the names that help uses: a new option that takes a file says so by its value.
Completion completion_of(const OptionDescription& option) {
  constexpr std::array<std::string_view, 6> names = {"FILE", "CONFIG.toml", "RUN",
                                                     "PATH", "IMAGE",       "MANIFEST"};
  if (option.value == "DIR") return Completion::folders;
  const bool file = std::ranges::any_of(
      names, [&](std::string_view name) { return option.value.find(name) != std::string::npos; });
  return file ? Completion::files : Completion::nothing;
}

std::string bash_completion(const CommandDescription& program) {
  std::string options = "_rondo_options() {\n  case $1 in\n";
  std::string arguments = "_rondo_arguments() {\n  case $1 in\n";
  std::string values = "_rondo_values() {\n  case \"$1 $2\" in\n";
  for_each(program, [&](const CommandDescription& command) {
    std::vector<std::string> names;
    for (const OptionDescription& option : command.options) {
      names.insert(names.end(), option.names.begin(), option.names.end());
      if (option.value.empty()) continue;
      for (const std::string& name : option.names) {
        values +=
            fmt::format("    '{} {}') echo '{}' ;;\n", command.name, name, bash_values(option));
      }
    }
    options += fmt::format("    '{}') echo '{}' ;;\n", command.name, fmt::join(names, " "));
    arguments += fmt::format("    '{}') echo '{}' ;;\n", command.name, bash_arguments(command));
  });
  const std::string end = "  esac\n}\n\n";
  return fmt::format(
      "# Completes command lines of rondo in bash. Made by `rondo generate bash`.\n\n"
      "{}{}{}{}{}{}{}",
      options, end, arguments, end, values, end,
      bash_function.substr(bash_function.find_first_not_of('\n')));
}

std::string zsh_completion(const CommandDescription& program) {
  std::string text =
      "#compdef rondo\n# Completes command lines of rondo in zsh. Made by `rondo generate "
      "zsh`.\n\n";
  for_each(program,
           [&](const CommandDescription& command) { text += zsh_function(command) + "\n"; });
  return text + "_rondo \"$@\"\n";
}

std::string fish_completion(const CommandDescription& program) {
  std::string text =
      "# Completes command lines of rondo in fish. Made by `rondo generate fish`.\n\n"
      "complete -c rondo -f\n";
  for_each(program, [&](const CommandDescription& command) { add_fish_lines(command, text); });
  return text;
}

}  // namespace rondo::tools

// Manual pages for man(7)'s macros, one for each command, made of the description of the program:
// they have what --help has, and cannot say anything else.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "failure.hpp"
#include "generate/generate.hpp"

namespace rondo::tools {
namespace {

// troff reads a backslash as an escape, a hyphen as one that may be set as another character, and a
// line that begins with a point or a quote as a request.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else if (c == '\n') {
      result += "\n";
    } else {
      if ((c == '.' || c == '\'') && (result.empty() || result.back() == '\n')) result += "\\&";
      result += c;
    }
  }
  return result;
}

std::string bold(const std::string& text) { return "\\fB" + escaped(text) + "\\fR"; }
std::string italic(const std::string& text) { return "\\fI" + escaped(text) + "\\fR"; }

// "[OPTIONS] CONFIG.toml IMAGE..."
std::string synopsis_of(const CommandDescription& command) {
  std::string text = bold(command.name) + " [" + italic("OPTIONS") + "]";
  if (!command.commands.empty()) return text + " " + italic("COMMAND") + " ...";
  for (const OptionDescription& argument : command.arguments) {
    const std::string value = italic(argument.value);
    text += argument.required ? " " + value : " [" + value + "]";
  }
  return text;
}

// A term and what it means, as in a list of options.
std::string item(const std::string& term, const std::string& text) {
  return ".TP\n" + term + "\n" + text + "\n";
}

std::string text_of(const OptionDescription& option) {
  std::string text = option.text;
  // Many texts have them already, with an explanation.
  const auto is_named = [&](const std::string& choice) {
    return option.text.find(choice) != std::string::npos;
  };
  if (!std::ranges::all_of(option.choices, is_named)) {
    text += fmt::format("; one of: {}", fmt::join(option.choices, ", "));
  }
  if (option.required) text += "; required";
  if (!option.otherwise.empty()) text += fmt::format(" (default: {})", option.otherwise);
  return escaped(text);
}

// "-n, --ranks N"
std::string term_of(const OptionDescription& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.names) names.push_back(bold(name));
  std::string term = fmt::format("{}", fmt::join(names, ", "));
  if (!option.value.empty()) term += (term.empty() ? "" : " ") + italic(option.value);
  return term;
}

std::string options_section(const char* heading, const std::vector<OptionDescription>& options) {
  if (options.empty()) return {};
  std::string text = fmt::format(".SH {}\n", heading);
  for (const OptionDescription& option : options) text += item(term_of(option), text_of(option));
  return text;
}

std::string commands_section(const CommandDescription& command) {
  if (command.commands.empty()) return {};
  std::string text = ".SH COMMANDS\n";
  for (const CommandDescription& below : command.commands) {
    text += item(bold(page_name(below)) + "(1)", escaped(below.summary));
  }
  return text;
}

std::string status_section() {
  const std::array<std::pair<int, const char*>, 9> statuses = {
      {{exit_done, "done"},
       {exit_failed, "a result is wrong, rondo doctor has found a problem, or another error"},
       {exit_usage, "the command line or the configuration is wrong"},
       {exit_data, "the data cannot be read, or a file cannot be written"},
       {exit_peer_lost, "a peer was lost, or a deadline passed"},
       {exit_not_finite, "the loss became NaN or Inf, or replicas differ"},
       {exit_stopped, "a run was stopped by SIGTERM, and has left a checkpoint"},
       {exit_cannot_execute, "rondo run cannot execute the program"},
       {exit_not_found, "rondo run does not find the program"}}};
  std::string text = ".SH EXIT STATUS\n";
  for (const auto& [status, meaning] : statuses) {
    text += item(std::to_string(status), escaped(meaning));
  }
  return text + item("128 + n", "signal n ended a rank");
}

std::string references(const CommandDescription& command, const CommandDescription* parent) {
  std::vector<std::string> pages;
  if (parent != nullptr) pages.push_back(bold(page_name(*parent)) + "(1)");
  const auto& others = parent != nullptr ? parent->commands : command.commands;
  for (const CommandDescription& other : others) {
    if (other.name != command.name) pages.push_back(bold(page_name(other)) + "(1)");
  }
  return fmt::format(".SH SEE ALSO\n{}\n", fmt::join(pages, ",\n"));
}

}  // namespace

std::string page_name(const CommandDescription& command) {
  std::string name = command.name;
  std::ranges::replace(name, ' ', '-');
  return name;
}

std::string manual_page(const CommandDescription& command, const CommandDescription* parent) {
  std::string title = page_name(command);
  std::ranges::transform(title, title.begin(), [](unsigned char c) { return std::toupper(c); });
  std::string text =
      fmt::format(".\\\" Made by `rondo generate`.\n.TH {} 1 \"\" \"rondo {}\" Rondo\n",
                  escaped(title), RONDO_VERSION);
  text +=
      fmt::format(".SH NAME\n{} \\- {}\n", escaped(page_name(command)), escaped(command.summary));
  text += fmt::format(".SH SYNOPSIS\n{}\n", synopsis_of(command));
  // Lines of a footer are laid out by hand.
  if (!command.footer.empty()) {
    text += fmt::format(".SH DESCRIPTION\n.nf\n{}\n.fi\n", escaped(command.footer));
  }
  text += options_section("ARGUMENTS", command.arguments);
  text += commands_section(command);
  text += options_section("OPTIONS", command.options);
  text += status_section();
  return text + references(command, parent);
}

}  // namespace rondo::tools

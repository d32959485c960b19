// The meaning of --schemes: lists of items, each a scheme with settings of it.
//
// Commas separate items and colons the parts of one, but not inside of quotes and brackets, which
// belong to a value. Whether schemes and keys exist, the configuration is asked later, with all
// that an item changes in it.

#include "compare/items.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <utility>

#include "failure.hpp"

namespace rondo::tools {
namespace {

// Without the blanks around it.
std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

// The parts of `text` between separators that stand outside of quotes and brackets.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  int depth = 0;
  char quote = '\0';
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != '\0') {
      if (c == quote) quote = '\0';
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == separator && depth <= 0) {
      parts.push_back(trimmed(text.substr(begin, i - begin)));
      begin = i + 1;
    }
  }
  parts.push_back(trimmed(text.substr(begin)));
  return parts;
}

// Only characters that need no quotes in a shell; a colon becomes a hyphen.
std::string folder_name(std::string_view text) {
  std::string name(text);
  for (char& c : name) {
    const bool safe = std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                      std::string_view("._=+-").find(c) != std::string_view::npos;
    if (!safe) c = c == ':' ? '-' : '_';
  }
  return name;
}

// "KEY=VALUE" as --set takes it; bare keys are of [update].
std::string setting_of(std::string_view part, std::string_view item) {
  const std::size_t equals = part.find('=');
  const std::string_view key = trimmed(part.substr(0, equals));
  if (equals == std::string_view::npos || key.empty()) {
    throw UsageError(
        fmt::format("scheme '{}': '{}' is no setting; write NAME:KEY=VALUE:KEY=VALUE", item, part));
  }
  if (key == "train.seed") {
    throw UsageError(
        fmt::format("scheme '{}': choose seeds for all schemes, by --seeds or --seed-list", item));
  }
  if (key == "scheme" || key == "update.scheme") {
    throw UsageError(
        fmt::format("scheme '{}': an item begins with its scheme; write it there alone", item));
  }
  // Most items differ in their scheme's keys.
  const std::string_view section = key.find('.') == std::string_view::npos ? "update." : "";
  return fmt::format("{}{}={}", section, key, trimmed(part.substr(equals + 1)));
}

}  // namespace

// The first part is the scheme, the others are settings; their text also names the folder, so that
// a comparison can be read without its command.
SchemeItem parse_scheme_item(std::string_view text) {
  const std::vector<std::string_view> parts = split(text, ':');
  const std::string_view name = parts.front();
  if (name.empty() || name.find('=') != std::string_view::npos) {
    throw UsageError(
        fmt::format("scheme '{}': begins with no scheme's name; write NAME:KEY=VALUE", text));
  }
  SchemeItem item{std::string(text), folder_name(text), {fmt::format("update.scheme={}", name)}};
  for (std::size_t i = 1; i < parts.size(); ++i)
    item.settings.push_back(setting_of(parts[i], text));
  return item;
}

std::vector<SchemeItem> parse_scheme_items(const std::vector<std::string>& lists) {
  std::vector<SchemeItem> items;
  for (const std::string& list : lists) {
    for (const std::string_view text : split(list, ',')) {
      if (text.empty()) throw UsageError(fmt::format("--schemes '{}': an item is empty", list));
      SchemeItem item = parse_scheme_item(text);
      // Two items in one folder would overwrite each other.
      const auto twin = std::ranges::find(items, item.label, &SchemeItem::label);
      if (twin != items.end()) {
        throw UsageError(
            fmt::format("schemes '{}' and '{}' would share the folder {}; name each once",
                        twin->text, item.text, item.label));
      }
      items.push_back(std::move(item));
    }
  }
  return items;
}

}  // namespace rondo::tools

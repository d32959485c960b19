// All tables of the program. A column is filled once, from rows of any type; this file knows only
// names and values, so text, CSV and JSON cannot disagree about what a table contains.
//
// Text is made of cells that are as wide as the widest of their column, two spaces apart. CSV
// follows RFC 4180. JSON keeps the order of the columns.
//
// A column with a name is for programs, one with a heading for people, one with both for both.
// Programs get values as they were measured; people get them scaled and rounded.

#include "table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace rondo::tools {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Cells = std::vector<std::string>;

bool is_number(const Value& value) {
  return std::holds_alternative<std::int64_t>(value) ||
         std::holds_alternative<std::uint64_t>(value) || std::holds_alternative<double>(value);
}

// Only for numbers.
double as_double(const Value& value) {
  if (const auto* number = std::get_if<std::int64_t>(&value)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<std::uint64_t>(&value)) return static_cast<double>(*number);
  return std::get<double>(value);
}

// A value as it is, for programs.
std::string exact(const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* number = std::get_if<std::int64_t>(&value)) return fmt::format("{}", *number);
  if (const auto* number = std::get_if<std::uint64_t>(&value)) return fmt::format("{}", *number);
  if (const auto* number = std::get_if<double>(&value)) return fmt::format("{}", *number);
  return {};
}

// The same for people.
std::string shown(const Value& value, const Column& column) {
  if (std::holds_alternative<std::monostate>(value)) return column.align == Align::left ? "" : "-";
  const bool rounded = std::holds_alternative<double>(value) || column.scale != 1.0;
  if (!is_number(value) || !rounded) return exact(value);
  return fmt::format("{:.{}f}", as_double(value) * column.scale, column.decimals);
}

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string result = "\"";
  for (const char c : text) result += c == '"' ? std::string("\"\"") : std::string(1, c);
  return result + '"';
}

// Names may need quotes, too.
std::string csv_line(const Cells& cells) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) line += (i > 0 ? "," : "") + quoted(cells[i]);
  return line + '\n';
}

// Nothing but its heading.
bool is_empty(const Cells& column) {
  return std::ranges::all_of(column.begin() + 1, column.end(), &std::string::empty);
}

std::string padded(const std::string& cell, std::size_t width, Align align) {
  return align == Align::left ? fmt::format("{:<{}}", cell, width)
                              : fmt::format("{:>{}}", cell, width);
}

}  // namespace

std::string counted(std::int64_t number, std::string_view noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

std::string printable(std::string text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  for (std::size_t i = 0; i < text.size(); ++i) {
    // U+0080 to U+009F have two bytes in UTF-8.
    const bool is_late =
        byte(i) == 0xc2 && i + 1 < text.size() && byte(i + 1) >= 0x80 && byte(i + 1) < 0xa0;
    if (byte(i) < 0x20 || byte(i) == 0x7f || is_late) text.replace(i, is_late ? 2 : 1, "?");
  }
  return text;
}

// Apart from Table, so that its header needs no JSON.
struct TableJson {
  [[nodiscard]] static OrderedJson value(const Value& cell) {
    if (const auto* text = std::get_if<std::string>(&cell)) return *text;
    if (const auto* number = std::get_if<std::int64_t>(&cell)) return *number;
    if (const auto* number = std::get_if<std::uint64_t>(&cell)) return *number;
    if (const auto* number = std::get_if<double>(&cell)) return *number;
    // A cell may be a table: an array of objects in JSON, and nothing in text and CSV.
    const auto* table = std::get_if<std::shared_ptr<const Table>>(&cell);
    return table != nullptr ? array(**table) : OrderedJson(nullptr);
  }

  [[nodiscard]] static OrderedJson row(const Table& table, std::size_t index) {
    OrderedJson object = OrderedJson::object();
    for (const Table::Filled& filled : table.columns_) {
      if (!filled.column.name.empty()) object[filled.column.name] = value(filled.cells[index]);
    }
    return object;
  }

  [[nodiscard]] static OrderedJson array(const Table& table) {
    OrderedJson rows = OrderedJson::array();
    for (std::size_t i = 0; i < table.rows_; ++i) rows.push_back(row(table, i));
    return rows;
  }
};

std::string Table::text(std::string_view indent) const {
  std::vector<Cells> columns;
  std::vector<Align> alignments;
  std::vector<std::size_t> widths;
  for (const Filled& filled : columns_) {
    if (filled.column.heading.empty()) continue;
    Cells cells = {filled.column.heading};
    for (const Value& value : filled.cells) cells.push_back(shown(value, filled.column));
    // A column of remarks without a remark is left out.
    if (filled.column.align == Align::left && is_empty(cells)) continue;
    widths.push_back(std::ranges::max(cells, {}, &std::string::size).size());
    columns.push_back(std::move(cells));
    alignments.push_back(filled.column.align);
  }
  std::string text;
  for (std::size_t line = 0; line <= rows_ && !columns.empty(); ++line) {
    text += indent;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      text += (i > 0 ? "  " : "") + padded(columns[i][line], widths[i], alignments[i]);
    }
    // No line ends in blanks.
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

std::string Table::csv() const {
  std::string text;
  for (std::size_t line = 0; line <= rows_; ++line) {
    Cells cells;
    for (const Filled& filled : columns_) {
      if (filled.column.name.empty()) continue;
      cells.push_back(line == 0 ? filled.column.name : exact(filled.cells[line - 1]));
    }
    text += csv_line(cells);
  }
  return text;
}

namespace {

// Names of files need not be UTF-8, as JSON has to be: what is not becomes U+FFFD.
std::string text_of(const OrderedJson& json) {
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + '\n';
}

}  // namespace

std::string Table::json() const { return text_of(TableJson::array(*this)); }

std::string Table::in(Format format) const {
  switch (format) {
    case Format::csv:
      return csv();
    case Format::json:
      return json();
    case Format::text:
      break;
  }
  return text();
}

std::string Table::json_object() const { return text_of(TableJson::row(*this, 0)); }

}  // namespace rondo::tools

#include "compare/comparison_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

#include "exit_status.hpp"

namespace rondo::tools {
namespace {

using Rows = std::span<const SchemeSummary>;
using Cells = std::vector<std::string>;  // one line, or one column

std::string percent(const std::optional<MeanAndDeviation>& value) {
  if (!value) return "-";
  if (!value->deviation) return fmt::format("{:.2f}", value->mean);
  return fmt::format("{:.2f} +- {:.2f}", value->mean, *value->deviation);
}

std::string whole(const std::optional<double>& value) {
  return value ? fmt::format("{:.0f}", *value) : "-";
}

std::string seconds(const std::optional<double>& value) {
  return value ? fmt::format("{:.1f}", *value) : "-";
}

// How long it took to the accuracy, and how many runs that is the mean of when not all got there.
std::string time_to_it(const SchemeSummary& row) {
  if (row.reached == row.done) return seconds(row.time_to_it);
  return row.reached == 0
             ? "-"
             : fmt::format("{} ({}/{})", seconds(row.time_to_it), row.reached, row.done);
}

class Columns {
 public:
  explicit Columns(Rows rows) : rows_(rows) {}

  template <class Text>
  void add(std::string name, Text&& text) {
    Cells column = {std::move(name)};
    for (const SchemeSummary& row : rows_) column.push_back(text(row));
    columns_.push_back(std::move(column));
  }

  void add_whole(std::string name, std::optional<double> SchemeSummary::* member) {
    add(std::move(name), [member](const SchemeSummary& row) { return whole(row.*member); });
  }

  void add_whole_if_any(std::string name, std::optional<double> SchemeSummary::* member) {
    const bool any = std::ranges::any_of(
        rows_, [member](const SchemeSummary& row) { return (row.*member).has_value(); });
    if (any) add_whole(std::move(name), member);
  }

  // The first column to the left, numbers to the right.
  [[nodiscard]] std::string text() const {
    std::string text;
    for (std::size_t line = 0; line <= rows_.size(); ++line) {
      for (std::size_t i = 0; i < columns_.size(); ++i) {
        const std::size_t width = std::ranges::max(columns_[i], {}, &std::string::size).size();
        const std::string& cell = columns_[i][line];
        text += i == 0 ? fmt::format("{:<{}}", cell, width) : fmt::format("  {:>{}}", cell, width);
      }
      text += '\n';
    }
    return text;
  }

 private:
  Rows rows_;
  std::vector<Cells> columns_ = {};
};

std::string field(const std::optional<double>& value) {
  return value ? fmt::format("{}", *value) : "";
}

std::string field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

std::optional<double> mean_of(const std::optional<MeanAndDeviation>& value) {
  return value ? std::optional(value->mean) : std::nullopt;
}

std::optional<double> deviation_of(const std::optional<MeanAndDeviation>& value) {
  return value ? value->deviation : std::nullopt;
}

Cells csv_row(const TableHead& head, const SchemeSummary& row) {
  return {field(row.label),
          field(mean_of(row.final_accuracy)),
          field(deviation_of(row.final_accuracy)),
          field(mean_of(row.best_accuracy)),
          field(deviation_of(row.best_accuracy)),
          fmt::format("{}", row.done),
          fmt::format("{}", row.seeds),
          field(row.global_reductions),
          field(row.local_reductions),
          field(row.bytes_sent),
          field(row.global_bytes),
          field(row.local_bytes),
          field(head.accuracy),
          head.accuracy ? fmt::format("{}", row.reached) : "",
          field(row.time_to_it),
          field(row.seconds),
          field(head.conditions)};
}

[[noreturn]] void fail_to_write(const std::filesystem::path& file, const std::error_code& error) {
  throw UsageError(fmt::format("cannot write {}: {}; choose another folder with --folder",
                               file.string(), error.message()));
}

}  // namespace

std::string comparison_table(const TableHead& head, Rows rows) {
  Columns columns(rows);
  columns.add("scheme", [](const SchemeSummary& row) { return row.label; });
  columns.add("accuracy %", [](const SchemeSummary& row) { return percent(row.final_accuracy); });
  columns.add("best %", [](const SchemeSummary& row) { return percent(row.best_accuracy); });
  columns.add("seeds",
              [](const SchemeSummary& row) { return fmt::format("{}/{}", row.done, row.seeds); });
  columns.add_whole("global reductions", &SchemeSummary::global_reductions);
  columns.add_whole("local reductions", &SchemeSummary::local_reductions);
  columns.add_whole("bytes sent", &SchemeSummary::bytes_sent);
  columns.add_whole_if_any("global bytes", &SchemeSummary::global_bytes);
  columns.add_whole_if_any("local bytes", &SchemeSummary::local_bytes);
  if (head.accuracy) columns.add(fmt::format("s to {:g} %", *head.accuracy), time_to_it);
  columns.add("s", [](const SchemeSummary& row) { return seconds(row.seconds); });
  const std::string text = columns.text();
  return head.conditions.empty() ? text : head.conditions + '\n' + text;
}

std::string comparison_csv(const TableHead& head, Rows rows) {
  std::string text =
      "scheme,final_accuracy,final_accuracy_deviation,best_accuracy,best_accuracy_deviation,"
      "seeds_done,seeds,global_reductions,local_reductions,bytes_sent,global_bytes,local_bytes,"
      "accuracy_asked_for,seeds_that_reached_it,seconds_to_it,seconds,conditions\n";
  for (const SchemeSummary& row : rows) {
    text += fmt::format("{}\n", fmt::join(csv_row(head, row), ","));
  }
  return text;
}

void replace_file(const std::filesystem::path& file, const std::string& text) {
  const std::filesystem::path aside = file.string() + ".new";
  errno = 0;
  std::ofstream stream(aside);
  stream << text << std::flush;
  if (!stream) fail_to_write(file, std::error_code(errno, std::generic_category()));
  stream.close();
  std::error_code error;
  std::filesystem::rename(aside, file, error);
  if (error) fail_to_write(file, error);
}

}  // namespace rondo::tools

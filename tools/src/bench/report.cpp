#include "bench/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace rondo::tools {
namespace {

using Cells = std::vector<std::string>;
using Json = nlohmann::ordered_json;

// What only some benches have is a column of its own only there.
struct Extras {
  bool limit = false;
  bool injected = false;
};

Extras extras_of(const std::vector<BenchRow>& rows) {
  return {std::ranges::any_of(rows, [](const BenchRow& row) { return row.limit_us.has_value(); }),
          std::ranges::any_of(rows, [](const BenchRow& row) { return !row.injected.empty(); })};
}

// The columns of a row in order, under their names.
Json object_of(const BenchRow& row, const Extras& extras) {
  Json object = {{"bytes", row.bytes},
                 {"count", row.count},
                 {"type", row.type},
                 {"op", row.op},
                 {"ranks", row.ranks},
                 {"memory", row.memory},
                 {"place", row.place},
                 {"min_us", row.time.min_us},
                 {"median_us", row.time.median_us},
                 {"p99_us", row.time.p99_us},
                 {"algbw_GBs", row.algorithm_gb_per_second()},
                 {"busbw_GBs", row.bus_gb_per_second()},
                 {"wrong", row.wrong}};
  if (extras.limit) {
    object["limit_us"] = row.limit_us.value_or(0.0);
    object["percent"] = row.percent();
  }
  if (extras.injected) object["injected"] = row.injected;
  return object;
}

Cells names(const Json& object) {
  Cells cells;
  for (const auto& item : object.items()) cells.push_back(item.key());
  return cells;
}

Cells values(const Json& object) {
  Cells cells;
  for (const auto& item : object.items()) {
    const Json& value = item.value();
    if (value.is_string()) {
      cells.push_back(value.get<std::string>());
    } else if (value.is_number_float()) {
      const bool percent = item.key() == "percent";
      cells.push_back(fmt::format("{:.{}f}", value.get<double>(), percent ? 1 : 2));
    } else {
      cells.push_back(value.dump());
    }
  }
  return cells;
}

std::string aligned(const Cells& cells) {
  std::string line;
  for (const std::string& cell : cells) line += fmt::format("{:>10}", " " + cell);
  return line + "\n";
}

template <typename Line>
std::string lines_of(const std::vector<BenchRow>& rows, Line line) {
  const Extras extras = extras_of(rows);
  std::string text;
  for (const BenchRow& row : rows) {
    const Json object = object_of(row, extras);
    if (text.empty()) text = line(names(object));
    text += line(values(object));
  }
  return text;
}

}  // namespace

std::string as_table(const std::vector<BenchRow>& rows) { return lines_of(rows, aligned); }

std::string as_csv(const std::vector<BenchRow>& rows) {
  return lines_of(rows,
                  [](const Cells& cells) { return fmt::format("{}\n", fmt::join(cells, ",")); });
}

std::string as_json(const std::vector<BenchRow>& rows) {
  const Extras extras = extras_of(rows);
  auto array = Json::array();
  for (const BenchRow& row : rows) array.push_back(object_of(row, extras));
  return array.dump(2) + "\n";
}

}  // namespace rondo::tools

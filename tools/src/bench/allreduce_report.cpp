#include "bench/allreduce_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace rondo::tools {
namespace {

using Cells = std::vector<std::string>;

bool have_limit(const std::vector<AllreduceRow>& rows) {
  return std::ranges::any_of(rows,
                             [](const AllreduceRow& row) { return row.limit_us.has_value(); });
}

Cells names(const std::vector<AllreduceRow>& rows) {
  Cells cells = {"bytes",  "ranks",     "memory",    "min_us", "median_us",
                 "p99_us", "algbw_GBs", "busbw_GBs", "wrong"};
  if (have_limit(rows)) cells.insert(cells.end(), {"limit_us", "percent"});
  return cells;
}

Cells values(const AllreduceRow& row) {
  Cells cells = {fmt::format("{}", row.bytes),
                 fmt::format("{}", row.ranks),
                 row.memory,
                 fmt::format("{:.2f}", row.time.min_us),
                 fmt::format("{:.2f}", row.time.median_us),
                 fmt::format("{:.2f}", row.time.p99_us),
                 fmt::format("{:.2f}", row.algorithm_gb_per_second()),
                 fmt::format("{:.2f}", row.bus_gb_per_second()),
                 fmt::format("{}", row.wrong)};
  if (row.limit_us) {
    cells.push_back(fmt::format("{:.2f}", *row.limit_us));
    cells.push_back(fmt::format("{:.1f}", row.percent()));
  }
  return cells;
}

std::string aligned(const Cells& cells) {
  std::string line;
  for (const std::string& cell : cells) line += fmt::format("{:>10}", cell);
  return line + "\n";
}

}  // namespace

std::string as_table(const std::vector<AllreduceRow>& rows) {
  std::string text = aligned(names(rows));
  for (const AllreduceRow& row : rows) text += aligned(values(row));
  return text;
}

std::string as_csv(const std::vector<AllreduceRow>& rows) {
  std::string text = fmt::format("{}\n", fmt::join(names(rows), ","));
  for (const AllreduceRow& row : rows) text += fmt::format("{}\n", fmt::join(values(row), ","));
  return text;
}

std::string as_json(const std::vector<AllreduceRow>& rows) {
  auto array = nlohmann::ordered_json::array();
  for (const AllreduceRow& row : rows) {
    nlohmann::ordered_json object = {{"bytes", row.bytes},
                                     {"ranks", row.ranks},
                                     {"memory", row.memory},
                                     {"min_us", row.time.min_us},
                                     {"median_us", row.time.median_us},
                                     {"p99_us", row.time.p99_us},
                                     {"algbw_GBs", row.algorithm_gb_per_second()},
                                     {"busbw_GBs", row.bus_gb_per_second()},
                                     {"wrong", row.wrong}};
    if (row.limit_us) {
      object["limit_us"] = *row.limit_us;
      object["percent"] = row.percent();
    }
    array.push_back(std::move(object));
  }
  return array.dump(2) + "\n";
}

}  // namespace rondo::tools

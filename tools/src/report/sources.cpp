// The arguments of `rondo report`: runs, comparisons, and files that other commands wrote.
//
// A file is known by what is in it, not by its name. The report shows the columns of a table in
// JSON that it knows, in the units that people read; it leaves others out, so that files of later
// versions can be shown.
//
// Every kind of file becomes the same two things: tables of texts, and charts of numbers, for which
// page.cpp and its script need not know where they come from. A path that the user has named and
// that is nothing of this ends the command; a file that happens to lie in a folder, and is damaged,
// does not.

#include "report/report.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <system_error>
#include <utility>

#include "failure.hpp"
#include "files.hpp"

namespace rondo::tools {
namespace {

namespace fs = std::filesystem;

using Json = nlohmann::json;

// How a column of a file is shown.
struct KnownColumn {
  const char* name;
  const char* heading;
  double scale = 1.0;
  int decimals = 0;
};

constexpr double mebi = 1.0 / (1 << 20);

// Columns of rondo plan's grids. Names are those of its JSON, which stay the same between versions.
const std::vector<KnownColumn> plan_columns = {
    {"strategy", "strategy"},
    {"ranks", "ranks"},
    {"pr", "pr"},
    {"pc", "pc"},
    {"communication_seconds", "communication ms", 1e3, 3},
    {"compute_seconds", "compute ms", 1e3, 3},
    {"overlapped_seconds", "step, overlapped ms", 1e3, 3},
    {"bytes_per_rank", "MiB/rank", mebi, 1},
    {"refused", "refused"},
};
const std::vector<KnownColumn> plan_layer_columns = {
    {"name", "layer"},
    {"split", "split"},
    {"compute_seconds", "compute ms", 1e3, 3},
    {"exchange_seconds", "exchange ms", 1e3, 3},
    {"reduction_seconds", "reduction ms", 1e3, 3},
    {"redistribution_seconds", "relayout ms", 1e3, 3},
};
// Columns of rondo plan --scaling.
const std::vector<KnownColumn> scaling_columns = {
    {"ranks", "ranks"},
    {"global_batch", "batch"},
    {"step_seconds", "step ms", 1e3, 3},
    {"compute_seconds", "compute ms", 1e3, 3},
    {"exposed_seconds", "exposed ms", 1e3, 3},
    {"images_per_second", "images/s", 1.0, 1},
    {"speedup", "speed-up", 1.0, 2},
    {"efficiency", "efficiency", 1.0, 3},
};
// Columns of rondo bench model --primitives.
const std::vector<KnownColumn> kernel_columns = {
    {"layer", "layer"},
    {"direction", "direction"},
    {"microseconds", "us", 1.0, 1},
    {"gflops", "GFLOP/s", 1.0, 1},
    {"implementation", "kernel"},
};
// Columns of the profile.json of rondo train --profile.
const std::vector<KnownColumn> profile_columns = {
    {"layer", "layer"},
    {"pass", "pass"},
    {"calls", "calls a step", 1.0, 1},
    {"step_us", "in the step us", 1.0, 1},
    {"warm_us", "alone, warm us", 1.0, 1},
    {"cold_us", "alone, cold us", 1.0, 1},
};

// As people read it; a dash where there is nothing.
std::string shown(const Json& row, const KnownColumn& column) {
  const auto cell = row.find(column.name);
  if (cell == row.end() || cell->is_null()) return "-";
  if (cell->is_string()) return cell->get<std::string>();
  if (!cell->is_number()) return "-";
  return fmt::format("{:.{}f}", cell->get<double>() * column.scale, column.decimals);
}

// A column is aligned to the right if any of its cells is a number.
bool is_number(const Json& rows, const KnownColumn& column) {
  return std::ranges::any_of(rows, [&](const Json& row) {
    return row.contains(column.name) && row[column.name].is_number();
  });
}

Json table_of(const std::string& title, const std::string& about, const Json& rows,
              const std::vector<KnownColumn>& known) {
  Json columns = Json::array();
  std::vector<const KnownColumn*> present;
  for (const KnownColumn& column : known) {
    // A column without a value in any row is left out: it may be of another version, or of another
    // strategy.
    const bool any = std::ranges::any_of(rows, [&](const Json& row) {
      return row.contains(column.name) && !row[column.name].is_null();
    });
    if (!any) continue;
    present.push_back(&column);
    columns.push_back({{"text", column.heading}, {"right", is_number(rows, column)}});
  }
  Json cells = Json::array();
  for (const Json& row : rows) {
    Json line = Json::array();
    for (const KnownColumn* column : present) line.push_back(shown(row, *column));
    cells.push_back(std::move(line));
  }
  return page_table(title, about, columns, cells);
}

// The numbers of one field, one for each row; null where there is none.
Json numbers(const Json& rows, const char* name) {
  Json values = Json::array();
  for (const Json& row : rows) {
    const auto value = number_in(row, name);
    values.push_back(value ? Json(*value) : Json());
  }
  return values;
}

Json axis(const char* label, bool logarithmic) { return {{"label", label}, {"log", logarithmic}}; }

Json chart_of(const std::string& title, const std::string& about, const Json& x, const Json& y,
              const Json& series) {
  return {{"title", title}, {"about", about}, {"x", x}, {"y", y}, {"series", series}};
}

// Rates on logarithmic axes, on which ideal scaling is a straight line.
void add_scaling(const std::string& name, const Json& rows, ReportSources& sources) {
  const Json ranks = numbers(rows, "ranks");
  const Json rates = numbers(rows, "images_per_second");
  // Ideal scaling begins with the first point of the prediction.
  Json ideal = Json::array();
  for (const Json& rank : ranks) {
    const bool known = rank.is_number() && rates.front().is_number() && ranks.front().is_number();
    ideal.push_back(
        known ? Json(rates.front().get<double>() * rank.get<double>() / ranks.front().get<double>())
              : Json());
  }
  sources.charts.push_back(chart_of(
      "Scaling: images per second, " + name, "Predicted by rondo plan; dashed: ideal scaling.",
      axis("ranks", true), axis("images/s", true),
      Json::array({{{"name", "predicted"}, {"x", ranks}, {"y", rates}},
                   {{"name", "ideal"}, {"x", ranks}, {"y", ideal}, {"dashed", true}}})));
  sources.charts.push_back(chart_of(
      "Scaling: efficiency, " + name, "Speed-up divided by the number of ranks.",
      axis("ranks", true), axis("", false),
      Json::array({{{"name", "efficiency"}, {"x", ranks}, {"y", numbers(rows, "efficiency")}}})));
  sources.tables.push_back(
      table_of("Scaling, " + name, "Predicted by rondo plan --scaling.", rows, scaling_columns));
}

void add_plan_table(const std::string& name, const Json& rows, ReportSources& sources) {
  sources.tables.push_back(table_of(
      "Process grids, " + name, "Predicted by rondo plan; usable grids first, the fastest first.",
      rows, plan_columns));
  // Only the best grid's layers are shown; usable grids come first.
  const Json& first = rows.front();
  if (first.contains("layers") && first["layers"].is_array() && !first["layers"].empty()) {
    sources.tables.push_back(table_of("Layers on the first grid, " + name,
                                      "Predicted times of a step, for each layer.", first["layers"],
                                      plan_layer_columns));
  }
}

void add_sweep(const std::string& name, const Json& sweep, ReportSources& sources) {
  const Json& points = sweep["points"];
  std::string about = "One rate for each step, from small to large.";
  const auto suggestion = number_in(sweep, "suggestion");
  if (suggestion) about += fmt::format(" Suggested: {:.2g}.", *suggestion);
  sources.charts.push_back(chart_of("Learning-rate sweep, " + name, about,
                                    axis("learning rate", true), axis("loss", false),
                                    Json::array({{{"name", "loss"},
                                                  {"x", numbers(points, "learning_rate")},
                                                  {"y", numbers(points, "loss")},
                                                  {"dashed", true}},
                                                 {{"name", "smoothed"},
                                                  {"x", numbers(points, "learning_rate")},
                                                  {"y", numbers(points, "smoothed")}}})));
}

// Rows that are all objects, and at least one.
bool is_rows(const Json& json) {
  return json.is_array() && !json.empty() &&
         std::ranges::all_of(json, [](const Json& row) { return row.is_object(); });
}

void add_profile(const std::string& name, const Json& profile, ReportSources& sources) {
  const std::string about = text_in(profile, "about");
  sources.tables.push_back(
      table_of("Where a step's time goes, " + name, about, profile["kernels"], profile_columns));
}

// Adds what a JSON file holds; false: nothing that a report shows.
bool add_json(const std::string& name, const Json& json, ReportSources& sources) {
  // Each command's JSON has a field that no other has.
  if (is_rows(json) && json.front().contains("efficiency")) {
    add_scaling(name, json, sources);
  } else if (is_rows(json) && json.front().contains("strategy")) {
    add_plan_table(name, json, sources);
  } else if (json.is_object() && json.contains("points") && is_rows(json["points"])) {
    add_sweep(name, json, sources);
  } else if (json.is_object() && json.contains("points") && json["points"].empty()) {
    sources.problems.push_back(name + ": no step of the sweep was completed");
  } else if (json.is_object() && json.contains("kernels") && is_rows(json["kernels"])) {
    if (json["kernels"].front().contains("step_us")) {
      add_profile(name, json, sources);
    } else {
      sources.tables.push_back(table_of("Kernels alone, " + name,
                                        "Measured by rondo bench model --primitives.",
                                        json["kernels"], kernel_columns));
    }
  } else {
    return false;
  }
  return true;
}

// RFC 4180: quotes around what has commas, quotes or line breaks; a quote is doubled.
std::vector<std::vector<std::string>> parse_csv(std::string_view text) {
  std::vector<std::vector<std::string>> rows(1, std::vector<std::string>(1));
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '"' && i + 1 < text.size() && text[i + 1] == '"') {
      rows.back().back() += text[++i];
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && c == ',') {
      rows.back().emplace_back();
    } else if (!quoted && c == '\n') {
      rows.emplace_back(1);
    } else if (c != '\r' || quoted) {
      rows.back().back() += c;
    }
  }
  if (rows.back().size() == 1 && rows.back().front().empty()) rows.pop_back();
  return rows;
}

void add_csv(const fs::path& path, const std::string& name, ReportSources& sources) {
  const auto rows = parse_csv(read_file(path));
  // The first row has the names.
  if (rows.size() < 2) {
    sources.problems.push_back(fmt::format("{}: there are no rows in it", path.string()));
    return;
  }
  Json columns = Json::array();
  for (const std::string& heading : rows.front()) {
    columns.push_back({{"text", heading}, {"right", false}});
  }
  Json cells = Json::array();
  for (std::size_t i = 1; i < rows.size(); ++i) {
    if (rows[i].size() == rows.front().size()) {
      cells.push_back(rows[i]);
    } else {
      sources.problems.push_back(fmt::format("{}: row {} is skipped: it has {} fields, not {}",
                                             path.string(), i + 1, rows[i].size(),
                                             rows.front().size()));
    }
  }
  sources.tables.push_back(page_table(name, path.string(), columns, cells));
}

// Adds a file that lies beside a run's metrics.jsonl: absent is right, damaged is named.
void add_file_of(const ReportedRun& run, const char* name, ReportSources& sources) {
  const fs::path file = run.folder / name;
  if (!is_there(file)) return;
  const Json json = Json::parse(read_file(file), nullptr, false);
  if (!add_json(run.name, json, sources)) {
    sources.problems.push_back(file.string() + ": skipped: it is damaged");
  }
}

bool is_run(const fs::path& folder) {
  return is_there(folder / "metrics.jsonl") || is_there(folder / "config.toml");
}

// Sorted, because a directory has no order of its own.
std::vector<fs::path> folders_in(const fs::path& folder) {
  std::vector<fs::path> folders;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.is_directory(error)) folders.push_back(entry.path());
  }
  std::ranges::sort(folders);
  return folders;
}

// A comparison's folders in the order of its table, which is the user's.
std::vector<fs::path> in_order_of(const fs::path& csv, std::vector<fs::path> folders) {
  const auto rows = parse_csv(read_file(csv));
  // Folders that the table does not name come last, by name.
  const auto place = [&](const fs::path& folder) {
    const auto found = std::ranges::find(rows, folder.filename().string(),
                                         [](const auto& row) { return row.front(); });
    return std::pair(found - rows.begin(), folder);
  };
  std::ranges::sort(folders, {}, place);
  return folders;
}

// Under the name that is given, unless that is empty. A folder that was read before is left out: an
// argument or a link may name it again, and it would count as another seed.
void add_run(const fs::path& folder, const fs::path& name, const std::string& item,
             ReportSources& sources) {
  const bool known = std::ranges::any_of(sources.runs, [&](const ReportedRun& run) {
    std::error_code error;
    return fs::equivalent(run.folder, folder, error);
  });
  if (known) return;
  ReportedRun& run = sources.runs.emplace_back(read_reported_run(folder));
  if (!name.empty()) run.name = name.string();
  run.item = item;
  add_file_of(run, "profile.json", sources);
  if (!is_there(folder / "find-rate.json")) return;
  add_file_of(run, "find-rate.json", sources);
  sources.runs.pop_back();  // a sweep is no training that compares with others
}

// rondo compare makes ITEM/seedN; other folders of runs have them as children. `place` comes before
// the names. Returns whether there is a run.
bool add_runs_below(const fs::path& folder, const fs::path& place, ReportSources& sources) {
  bool found = false;
  const fs::path table = folder / "compare.csv";
  const bool compared = is_there(table);
  if (compared) add_csv(table, (place / table.filename()).string(), sources);
  for (const fs::path& child : in_order_of(table, folders_in(folder))) {
    const fs::path name = place / child.filename();
    if (is_run(child)) {
      add_run(child, name, {}, sources);
      found = true;
    }
    for (const fs::path& grandchild : folders_in(child)) {
      if (!is_run(grandchild)) continue;
      add_run(grandchild, name / grandchild.filename(), compared ? name.string() : "", sources);
      found = true;
    }
  }
  return found;
}

// A comparison among runs, or another folder with runs as far below.
bool has_runs_two_levels_below(const fs::path& folder) {
  if (is_run(folder)) return false;
  return std::ranges::any_of(folders_in(folder), [](const fs::path& child) {
    return std::ranges::any_of(folders_in(child), is_run);
  });
}

void add_folder_of_runs(const fs::path& folder, ReportSources& sources) {
  bool found = add_runs_below(folder, {}, sources);
  for (const fs::path& child : folders_in(folder)) {
    const bool compared = is_there(child / "compare.csv");
    if (!compared && !has_runs_two_levels_below(child)) continue;
    found = add_runs_below(child, child.filename(), sources) || found;
  }
  if (found) return;
  // It was named by mistake.
  throw UsageError(
      fmt::format("there is no run in {}: neither metrics.jsonl nor config.toml is in it, nor in "
                  "its folders; name a run directory, or one of rondo compare",
                  folder.string()));
}

void add_file(const fs::path& file, ReportSources& sources) {
  const std::string name = file.filename().string();
  if (name == "metrics.jsonl") {
    add_run(file.has_parent_path() ? file.parent_path() : fs::path("."), {}, {}, sources);
  } else if (file.extension() == ".csv") {
    add_csv(file, name, sources);
  } else if (!add_json(name, Json::parse(read_file(file), nullptr, false), sources)) {
    throw UsageError(fmt::format(
        "{} is nothing that a report shows: it must be a run directory, one of rondo compare, a "
        "CSV file, or JSON of rondo plan, bench model, find-rate or train --profile",
        file.string()));
  }
}

}  // namespace

Json page_table(const std::string& title, const std::string& about, const Json& columns,
                const Json& rows) {
  return {{"title", title}, {"about", about}, {"columns", columns}, {"rows", rows}};
}

ReportSources read_sources(const std::vector<fs::path>& paths) {
  ReportSources sources;
  for (const fs::path& path : paths) {
    std::error_code error;
    if (!fs::exists(path, error)) {
      throw UsageError(fmt::format("{} does not exist; name a run directory", path.string()));
    }
    if (::access(path.c_str(), fs::is_directory(path, error) ? R_OK | X_OK : R_OK) != 0) {
      throw UsageError(fmt::format("{}: cannot be read: {}; name a run directory that can be",
                                   path.string(),
                                   std::error_code(errno, std::generic_category()).message()));
    }
    if (!fs::is_directory(path, error)) {
      add_file(path, sources);
    } else if (is_run(path)) {
      add_run(path, {}, {}, sources);
    } else {
      add_folder_of_runs(path, sources);
    }
  }
  return sources;
}

}  // namespace rondo::tools

// The arguments of `rondo report`: run directories, and directories of comparisons or other runs.
//
// A path that the user has named and that is nothing of this ends the command; what happens to lie
// in a folder, and is damaged, does not.

#include "report/report.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <sstream>
#include <system_error>
#include <utility>

#include "failure.hpp"
#include "files.hpp"

namespace rondo::tools {
namespace {

namespace fs = std::filesystem;

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
  // The first field of a line is the name of the folder, which has no commas and no quotes.
  std::vector<std::string> names;
  std::istringstream lines(read_file(csv));
  for (std::string line; std::getline(lines, line);)
    names.push_back(line.substr(0, line.find(',')));
  // Folders that the table does not name come last, by name.
  std::ranges::sort(folders, {}, [&](const fs::path& folder) {
    const auto found = std::ranges::find(names, folder.filename().string());
    return std::pair(found - names.begin(), folder);
  });
  return folders;
}

// Under the name that is given, unless that is empty. A folder that was read before is left out: an
// argument or a link may name it again, and it would count as another seed.
void add_run(const fs::path& folder, const fs::path& name, const std::string& item,
             std::vector<ReportedRun>& runs) {
  const bool known = std::ranges::any_of(runs, [&](const ReportedRun& run) {
    std::error_code error;
    return fs::equivalent(run.folder, folder, error);
  });
  if (known) return;
  ReportedRun& run = runs.emplace_back(read_reported_run(folder));
  if (!name.empty()) run.name = name.string();
  run.item = item;
}

// rondo compare makes ITEM/seedN; other folders of runs have them as children. `place` comes before
// the names. Returns whether there is a run.
bool add_runs_below(const fs::path& folder, const fs::path& place, std::vector<ReportedRun>& runs) {
  bool found = false;
  const fs::path table = folder / "compare.csv";
  const bool compared = is_there(table);
  for (const fs::path& child : in_order_of(table, folders_in(folder))) {
    const fs::path name = place / child.filename();
    if (is_run(child)) {
      add_run(child, name, {}, runs);
      found = true;
    }
    for (const fs::path& grandchild : folders_in(child)) {
      if (!is_run(grandchild)) continue;
      add_run(grandchild, name / grandchild.filename(), compared ? name.string() : "", runs);
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

void add_folder_of_runs(const fs::path& folder, std::vector<ReportedRun>& runs) {
  bool found = add_runs_below(folder, {}, runs);
  for (const fs::path& child : folders_in(folder)) {
    const bool compared = is_there(child / "compare.csv");
    if (!compared && !has_runs_two_levels_below(child)) continue;
    found = add_runs_below(child, child.filename(), runs) || found;
  }
  if (found) return;
  // It was named by mistake.
  throw UsageError(
      fmt::format("there is no run in {}: neither metrics.jsonl nor config.toml is in it, nor in "
                  "its folders; name a run directory, or one of rondo compare",
                  folder.string()));
}

}  // namespace

std::vector<ReportedRun> read_runs(const std::vector<fs::path>& paths) {
  std::vector<ReportedRun> runs;
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
    if (path.filename() == "metrics.jsonl") {
      add_run(path.has_parent_path() ? path.parent_path() : fs::path("."), {}, {}, runs);
    } else if (!fs::is_directory(path, error)) {
      throw UsageError(path.string() +
                       " is nothing that a report shows; name a run directory, or one of rondo "
                       "compare");
    } else if (is_run(path)) {
      add_run(path, {}, {}, runs);
    } else {
      add_folder_of_runs(path, runs);
    }
  }
  return runs;
}

}  // namespace rondo::tools

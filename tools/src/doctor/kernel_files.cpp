// Reads the files in which the kernel tells about this process and this machine, below a folder
// that is "/" outside of tests.
//
// Control groups need the most care. A process is in one group of version 2, or in one group for
// each controller of version 1, or in both; /proc/self/cgroup has their paths. Limits hold for all
// groups around it, too, so every folder up to the mount point is asked, and the least counts. In a
// container the path may be that of the host, which does not exist inside; then the mount point
// itself is the group.

#include "doctor/kernel_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <tuple>
#include <vector>

namespace rondo::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* blanks = " \t:";

// Values above this mean "no limit" in groups of version 1, which have no word for it.
constexpr std::int64_t unlimited_bytes = std::int64_t{1} << 60U;

// The path of this process' group for `controller`; of version 2 when that is empty.
std::optional<std::string> group_path(const fs::path& root, const std::string& controller) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::istringstream names(line.substr(first + 1, second - first - 1));
    bool found = controller.empty() && second == first + 1;
    for (std::string name; std::getline(names, name, ',');) found |= name == controller;
    if (found) return line.substr(second + 1);
  }
  return std::nullopt;
}

// The group's folder below `mount` and all around it, `mount` last.
void add_folders(const fs::path& mount, const std::string& path, std::vector<fs::path>& folders) {
  std::error_code none;
  if (!fs::is_directory(mount, none)) return;
  for (fs::path part = fs::path(path).relative_path(); !part.empty(); part = part.parent_path()) {
    if (fs::is_directory(mount / part, none)) folders.push_back(mount / part);
  }
  folders.push_back(mount);
}

// Where a limit of `controller` may stand.
std::vector<fs::path> group_folders(const fs::path& root, const std::string& controller) {
  const fs::path groups = root / "sys/fs/cgroup";
  std::vector<fs::path> folders;
  if (const auto path = group_path(root, "")) {
    add_folders(groups / "unified", *path, folders);
    add_folders(groups, *path, folders);
  }
  if (const auto path = group_path(root, controller)) {
    // "cpu" is often mounted together with "cpuacct", under both names or either.
    for (const std::string& name : {controller, controller + "," + controller + "acct"}) {
      add_folders(groups / name, *path, folders);
    }
  }
  return folders;
}

// As it is called on the machine, without the root of a test.
std::string name_below(const fs::path& root, const fs::path& file) {
  return "/" + file.lexically_relative(root).string();
}

// Keeps the lesser of both.
void keep_least(std::optional<GroupLimit>& least, double amount, std::string source) {
  if (!least || amount < least->amount) least = {amount, std::move(source)};
}

// "max 100000" or "150000 100000" of version 2, two files of version 1.
std::optional<double> quota_in(const fs::path& folder, std::string& file) {
  if (const auto line = first_line(folder, "cpu.max")) {
    file = "cpu.max";
    const auto quota = number_of(line);
    const auto period = number_of(line->substr(std::min(line->size(), line->find(' ') + 1)));
    if (!quota || !period || *period <= 0) return std::nullopt;
    return static_cast<double>(*quota) / static_cast<double>(*period);
  }
  file = "cpu.cfs_quota_us";
  const auto quota = number_of(first_line(folder, "cpu.cfs_quota_us"));
  const auto period = number_of(first_line(folder, "cpu.cfs_period_us"));
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

// The limit of memory and what is used of it, of either version. Files that were read and that
// nobody reads now are given up when memory ends.
std::optional<double> free_memory_in(const fs::path& folder, std::string& file) {
  for (const auto& [limit_name, used_name, cached_name] :
       {std::tuple("memory.max", "memory.current", "inactive_file"),
        std::tuple("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")}) {
    const auto limit = number_of(first_line(folder, limit_name));
    if (!limit || *limit >= unlimited_bytes) continue;
    file = limit_name;
    const auto used = number_of(first_line(folder, used_name)).value_or(0);
    const auto cached = number_of(line_of(folder, "memory.stat", cached_name)).value_or(0);
    return static_cast<double>(std::clamp<std::int64_t>(*limit - used + cached, 0, *limit));
  }
  return std::nullopt;
}

// The least of what `read` finds in the folders of `controller`.
template <class Read>
std::optional<GroupLimit> least_of(const fs::path& root, const std::string& controller,
                                   const Read& read) {
  std::optional<GroupLimit> least;
  for (const fs::path& folder : group_folders(root, controller)) {
    std::string file;
    if (const auto amount = read(folder, file)) {
      keep_least(least, *amount, name_below(root, folder / file));
    }
  }
  return least;
}

}  // namespace

std::optional<std::string> first_line(const fs::path& root, const std::string& name) {
  std::ifstream file(root / name);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<std::string> line_of(const fs::path& root, const std::string& name,
                                   const std::string& key) {
  std::ifstream file(root / name);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t begin = line.find_first_not_of(blanks, key.size());
    // A longer key may begin with the same letters.
    if (begin == key.size() && begin < line.size()) continue;
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return std::nullopt;
}

std::optional<std::int64_t> number_of(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  return error == std::errc{} ? std::optional(value) : std::nullopt;
}

// "Max open files            20000                20000                files"
std::optional<Limit> limit_of(const fs::path& root, const std::string& name) {
  const auto line = line_of(root, "proc/self/limits", name);
  if (!line) return std::nullopt;
  std::istringstream words(*line);
  std::string soft;
  std::string hard;
  if (!(words >> soft >> hard)) return std::nullopt;
  return Limit{number_of(soft), number_of(hard)};
}

std::optional<GroupLimit> cpu_quota(const fs::path& root) {
  return least_of(root, "cpu", quota_in);
}

std::optional<GroupLimit> free_group_memory(const fs::path& root) {
  return least_of(root, "memory", free_memory_in);
}

std::string in_units(double bytes) {
  constexpr double kibibyte = 1024.0;
  constexpr double mebibyte = kibibyte * 1024.0;
  constexpr double gibibyte = mebibyte * 1024.0;
  if (bytes >= 10.0 * gibibyte) return fmt::format("{:.0f} GiB", bytes / gibibyte);
  if (bytes >= gibibyte) return fmt::format("{:.1f} GiB", bytes / gibibyte);
  if (bytes >= mebibyte) return fmt::format("{:.0f} MiB", bytes / mebibyte);
  return fmt::format("{:.0f} KiB", bytes / kibibyte);
}

}  // namespace rondo::tools

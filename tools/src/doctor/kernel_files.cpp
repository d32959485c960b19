// Reads the files in which the kernel tells about this process and this machine, below a folder
// that is "/" outside of tests.

#include "doctor/kernel_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <tuple>

#include <rondo/transport/usable_cpus.hpp>

namespace rondo::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* blanks = " \t:";

// Values above this mean "no limit" in groups of version 1, which have no word for it.
constexpr std::int64_t unlimited_bytes = std::int64_t{1} << 60U;

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

std::optional<GroupLimit> free_group_memory(const fs::path& root) {
  std::optional<GroupLimit> least;
  for (const fs::path& folder : transport::control_groups(root, "memory")) {
    std::string file;
    const auto amount = free_memory_in(folder, file);
    if (!amount || (least && least->amount <= *amount)) continue;
    // As it is called on the machine, without the root of a test.
    least = {*amount, "/" + (folder / file).lexically_relative(root).string()};
  }
  return least;
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

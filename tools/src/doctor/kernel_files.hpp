#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace rondo::tools {

/// The first line of root/`name`, without its end; nothing when the file cannot be read.
[[nodiscard]] std::optional<std::string> first_line(const std::filesystem::path& root,
                                                    const std::string& name);

/// The text behind "KEY" and blanks or a colon in the first line of root/`name` that begins so.
[[nodiscard]] std::optional<std::string> line_of(const std::filesystem::path& root,
                                                 const std::string& name, const std::string& key);

/// A whole number at the beginning of `text`; nothing when there is none, as in "max".
[[nodiscard]] std::optional<std::int64_t> number_of(const std::optional<std::string>& text);

/// A limit of this process, by its name in /proc/self/limits.
struct Limit {
  std::optional<std::int64_t> soft = {};  ///< nothing: unlimited
  std::optional<std::int64_t> hard = {};
};
/// Nothing when there is no such line.
[[nodiscard]] std::optional<Limit> limit_of(const std::filesystem::path& root,
                                            const std::string& name);

/// The bytes that a control group, of version 1 or 2, leaves to this process, and the file that
/// says so.
struct GroupLimit {
  double amount = 0.0;
  std::string source = {};
};
/// The memory that may still be used: the least of this group and those around it.
[[nodiscard]] std::optional<GroupLimit> free_group_memory(const std::filesystem::path& root);

/// "24.1 GiB", "512 MiB", "8 KiB".
[[nodiscard]] std::string in_units(double bytes);

}  // namespace rondo::tools

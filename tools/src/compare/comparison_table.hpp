#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "compare/summary.hpp"

namespace rondo::tools {

/// What all rows have in common.
struct TableHead {
  std::string conditions = {};          ///< "2 ranks x 1 thread"; empty: not known
  std::optional<double> accuracy = {};  ///< percent, that times are taken to
};

/// A table for people; the columns that no run has values for are left out.
[[nodiscard]] std::string comparison_table(const TableHead& head,
                                           std::span<const SchemeSummary> rows);

/// The same for programs: every column, unrounded, empty where there is no value.
[[nodiscard]] std::string comparison_csv(const TableHead& head,
                                         std::span<const SchemeSummary> rows);

/// Writes `text` aside and renames it to `file`: a reader sees the old file or the new one. Throws
/// UsageError.
void replace_file(const std::filesystem::path& file, const std::string& text);

}  // namespace rondo::tools

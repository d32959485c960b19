#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report/run.hpp"

namespace rondo::tools {

/// What a report is made of.
struct ReportSources {
  std::vector<ReportedRun> runs = {};
  std::vector<nlohmann::json> tables = {};  ///< of files: title, about, columns, rows
  std::vector<nlohmann::json> charts = {};  ///< of files: title, about, axes, series
  std::vector<std::string> problems = {};   ///< of files, a line each
};

/// Reads run directories, directories of comparisons (all runs below, and compare.csv), CSV files,
/// and the JSON of `rondo plan`, `rondo bench model`, `rondo find-rate` and `rondo train
/// --profile`. Throws UsageError for what is none of these.
[[nodiscard]] ReportSources read_sources(const std::vector<std::filesystem::path>& paths);

/// A table of the page: cells are texts, columns {"text", "right"}.
[[nodiscard]] nlohmann::json page_table(const std::string& title, const std::string& about,
                                        const nlohmann::json& columns, const nlohmann::json& rows);

}  // namespace rondo::tools

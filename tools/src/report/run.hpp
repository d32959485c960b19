#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "compare/runs.hpp"

namespace rondo::tools {

/// A run as its folder tells it, for a report.
struct ReportedRun {
  std::filesystem::path folder = {};
  std::string name = {};  ///< of the folder; within a comparison "ITEM/seed1"
  std::string item = {};  ///< of a comparison: what `--schemes` called it; else empty
  RunRecord record = {};
  nlohmann::json start = {};  ///< the event; null: there is none
  nlohmann::json end = {};    ///< likewise
  std::map<std::string, std::vector<nlohmann::json>> events = {};  ///< the others, by kind
  std::map<std::string, std::string> keys = {};  ///< the configuration: "section.key"
  std::vector<std::string> problems = {};        ///< "FILE:LINE: ...", one line each
};

/// Reads metrics.jsonl and config.toml of `folder`. What is missing or damaged is skipped and named
/// in `problems`. Throws UsageError when the folder holds neither.
[[nodiscard]] ReportedRun read_reported_run(const std::filesystem::path& folder);

/// A number of an event; nothing when it is absent, null, or no number.
[[nodiscard]] std::optional<double> number_in(const nlohmann::json& event, const char* name);

/// A text of an event; empty when it is absent.
[[nodiscard]] std::string text_in(const nlohmann::json& event, const char* name);

/// A curve of a report: what the events of one kind say in one field. The three kinds of x are
/// beside each other, because the page lets its reader choose.
struct CurveKind {
  const char* title;      ///< "test accuracy"
  const char* unit;       ///< "%"; may be empty
  const char* event;      ///< "epoch"
  const char* field;      ///< "accuracy"
  const char* about;      ///< one sentence for the reader
  bool from_zero = true;  ///< does the axis begin at 0?
  double scale = 1.0;
};

/// All curves that a report shows, in its order.
[[nodiscard]] const std::vector<CurveKind>& curve_kinds();

/// The points of a curve as {"step": [...], "epoch": [...], "seconds": [...], "y": [...]}; null
/// when the run has none. A long curve is thinned out, and has its first and last point.
[[nodiscard]] nlohmann::json curve_of(const ReportedRun& run, const CurveKind& kind);

}  // namespace rondo::tools

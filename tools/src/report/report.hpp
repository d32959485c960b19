#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compare/runs.hpp"

namespace rondo::tools {

// A report in its four steps: a run as its folder tells it (run.cpp), the runs that are asked for
// (sources.cpp), the advice which variant to take (advice.cpp), and the page (page.cpp).

/// A run as its folder tells it, for a report.
struct ReportedRun {
  std::filesystem::path folder = {};
  std::string name = {};  ///< of the folder; within a comparison "ITEM/seed1"
  std::string item = {};  ///< of a comparison: what `--schemes` called it; else empty
  RunRecord record = {};
  nlohmann::json start = {};  ///< the event, as its last part goes on; null: there is none
  std::vector<nlohmann::json> parts = {};  ///< the same for each part of the run
  nlohmann::json end = {};                 ///< likewise
  std::map<std::string, std::vector<nlohmann::json>> events = {};  ///< the others, by kind
  std::map<std::string, std::string> keys = {};  ///< the configuration: "section.key"
  std::vector<std::string> problems = {};        ///< "FILE:LINE: ...", one line each
};

/// Reads metrics.jsonl and config.toml of `folder`. What is missing or damaged is skipped and named
/// in `problems`. Throws UsageError when the folder holds neither.
[[nodiscard]] ReportedRun read_reported_run(const std::filesystem::path& folder);

/// A list of texts of an event, sorted, each once: "a, b"; empty when it is absent.
[[nodiscard]] std::string list_in(const nlohmann::json& event, const char* name);

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

/// Reads run directories, and directories of comparisons or other runs: all runs below. Throws
/// UsageError for what is none of these.
[[nodiscard]] std::vector<ReportedRun> read_runs(const std::vector<std::filesystem::path>& paths);

/// Runs that differ in nothing but their seed.
struct Variant {
  std::string label = {};
  std::string scheme = {};
  std::vector<std::size_t> runs = {};       ///< indices; never empty
  std::vector<std::size_t> completed = {};  ///< the first that completed of each seed
  std::size_t seeds = 0;                    ///< of all runs
  std::size_t repeated = 0;    ///< further runs that completed with a seed of `completed`
  SchemeSummary summary = {};  ///< of the completed runs; its time is to Advice::accuracy
  std::optional<double> images_per_second = {};  ///< mean of the completed runs
};

/// Which variant a reader should take, and why.
struct Advice {
  std::optional<std::size_t> take = {};  ///< a variant
  std::optional<double> accuracy = {};   ///< percent: the best that all candidates reached
  std::string answer = {};               ///< one or more sentences
  std::vector<std::string> notes = {};   ///< what limits the answer, a sentence each
};

/// A key that is not the same in all variants.
struct Difference {
  std::string key = {};
  std::vector<std::string> values = {};  ///< by variant; "-": it has no such key
};

/// Groups the runs by configuration, ranks and nodes; a variant is named after the item of a
/// comparison, else after its scheme and the keys that tell it from others of the same scheme.
[[nodiscard]] std::vector<Variant> variants_of(const std::vector<ReportedRun>& runs);

/// Compares the variants. Candidates are those whose final accuracy cannot be told from the best;
/// of these the advice takes the one that was first to the accuracy that all candidates reached.
/// Writes that time into each summary.
[[nodiscard]] Advice advise(const std::vector<ReportedRun>& runs, std::vector<Variant>& variants);

/// All keys that differ.
[[nodiscard]] std::vector<Difference> differences_of(const std::vector<ReportedRun>& runs,
                                                     const std::vector<Variant>& variants);

/// The page without its data, from page.html.
extern const std::string_view page_template;

/// The data that the page shows, as the script of page.html reads them.
[[nodiscard]] nlohmann::json page_data(const std::string& title,
                                       const std::vector<ReportedRun>& runs);

/// One HTML file that needs no other and no network. Whatever text is in `data`, it stays text.
[[nodiscard]] std::string page_of(const nlohmann::json& data);

}  // namespace rondo::tools

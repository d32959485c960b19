// The page of a report: all data as one JSON object within the template, whose script draws them.
//
// Nothing that comes from a file is ever written as HTML. The data stand in a script element of
// type application/json, in which "<" is written as an escape of JSON, so that no text can end the
// element; and the page's script puts texts into the document as text nodes alone.
//
// The page shows what it gets: which value of a column is the best, and in which unit a number
// stands, is decided here, where it can be tested without a browser.

#include "report/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace rondo::tools {
namespace {

using Json = nlohmann::json;

// A column of the summary: what it shows, and which value is the best of the column.
struct SummaryColumn {
  std::string heading;
  std::function<std::optional<double>(const Variant&)> value;
  std::function<std::string(const Variant&)> text;
  enum class Best { none, least, most } best = Best::none;
};

std::string number(const std::optional<double>& value, int decimals, double scale = 1.0) {
  return value ? fmt::format("{:.{}f}", *value * scale, decimals) : "-";
}

std::optional<double> mean_of(const std::optional<MeanAndDeviation>& value) {
  return value ? std::optional(value->mean) : std::nullopt;
}

std::string with_spread(const std::optional<MeanAndDeviation>& value) {
  if (!value) return "-";
  if (!value->deviation) return number(value->mean, 2);
  return fmt::format("{:.2f} \u00b1 {:.2f}", value->mean, *value->deviation);
}

// A mean of some of the runs would look faster than it is.
std::optional<double> time_of(const Variant& variant) {
  const SchemeSummary& row = variant.summary;
  return row.done > 0 && row.reached == row.done ? row.time_to_it : std::nullopt;
}

std::string time_text(const Variant& variant) {
  const SchemeSummary& row = variant.summary;
  if (row.done == 0) return "-";
  if (row.reached == 0) return "not reached";
  const std::string seconds = number(row.time_to_it, 1);
  return row.reached == row.done ? seconds
                                 : fmt::format("{} ({} of {})", seconds, row.reached, row.done);
}

// The columns of the table that answers which scheme to take. A column says what is best in it: the
// most accuracy, the least time and bytes.
std::vector<SummaryColumn> summary_columns(const Advice& advice) {
  using Best = SummaryColumn::Best;
  const std::string reached =
      advice.accuracy ? fmt::format("s to {:.2f} %", *advice.accuracy) : "s to accuracy";
  return {
      {"final accuracy %", [](const Variant& v) { return mean_of(v.summary.final_accuracy); },
       [](const Variant& v) { return with_spread(v.summary.final_accuracy); }, Best::most},
      {"best accuracy %", [](const Variant& v) { return mean_of(v.summary.best_accuracy); },
       [](const Variant& v) { return with_spread(v.summary.best_accuracy); }, Best::most},
      {reached, time_of, time_text, Best::least},
      {"sent, MiB", [](const Variant& v) { return v.summary.bytes_sent; },
       [](const Variant& v) { return number(v.summary.bytes_sent, 1, 1.0 / (1 << 20)); },
       Best::least},
      {"images/s", [](const Variant& v) { return v.images_per_second; },
       [](const Variant& v) { return number(v.images_per_second, 0); }, Best::most},
      {"training s", [](const Variant& v) { return v.summary.seconds; },
       [](const Variant& v) { return number(v.summary.seconds, 1); }, Best::least},
      {"seeds", [](const Variant&) { return std::optional<double>(); },
       [](const Variant& v) { return fmt::format("{} of {}", v.completed.size(), v.seeds); }},
  };
}

// One alone is not the best of anything.
std::optional<double> best_of(const SummaryColumn& column, const std::vector<Variant>& variants) {
  if (variants.size() < 2 || column.best == SummaryColumn::Best::none) return std::nullopt;
  std::optional<double> best;
  for (const Variant& variant : variants) {
    const auto value = column.value(variant);
    if (!value) continue;
    const bool least = column.best == SummaryColumn::Best::least;
    best = !best ? *value : least ? std::min(*best, *value) : std::max(*best, *value);
  }
  return best;
}

// Cells are texts, columns {"text", "right"}.
Json page_table(const char* title, const char* about, const Json& columns, const Json& rows) {
  return {{"title", title}, {"about", about}, {"columns", columns}, {"rows", rows}};
}

Json summary_of(const std::vector<Variant>& variants, const Advice& advice) {
  Json columns = Json::array({{{"text", "scheme"}, {"right", false}}});
  std::vector<Json> rows;
  for (std::size_t i = 0; i < variants.size(); ++i) {
    const bool taken = advice.take == i;
    rows.push_back(Json::array(
        {{{"text", variants[i].label}, {"key", i}, {"mark", taken ? "take this" : ""}}}));
  }
  for (const SummaryColumn& column : summary_columns(advice)) {
    columns.push_back({{"text", column.heading}, {"right", true}});
    // Without a common accuracy the variants do not compare.
    const auto best = advice.accuracy ? best_of(column, variants) : std::nullopt;
    for (std::size_t i = 0; i < variants.size(); ++i) {
      const bool is_best = best && column.value(variants[i]) == best;
      rows[i].push_back({{"text", column.text(variants[i])}, {"best", is_best}});
    }
  }
  return page_table("", "", columns, rows);
}

std::string state_of(const ReportedRun& run) {
  if (run.record.end_reason.empty()) return "not ended";
  return run.record.end_reason;
}

// From the start and end events. A run that was killed has no end, and dashes in its columns.
Json runs_table(const std::vector<ReportedRun>& runs) {
  Json columns = Json::array();
  for (const auto& [text, right] : {std::pair{"run", false},
                                    {"state", false},
                                    {"model", false},
                                    {"data", false},
                                    {"ranks", true},
                                    {"threads", true},
                                    {"nodes", true},
                                    {"seed", true},
                                    {"steps", true},
                                    {"final accuracy %", true},
                                    {"training s", true},
                                    {"peak MiB", true},
                                    {"hosts", false},
                                    {"injected", false}}) {
    columns.push_back({{"text", text}, {"right", right}});
  }
  Json rows = Json::array();
  for (const ReportedRun& run : runs) {
    const auto of_start = [&](const char* name) { return number(number_in(run.start, name), 0); };
    const auto of_end = [&](const char* name, int decimals, double scale = 1.0) {
      return number(number_in(run.end, name), decimals, scale);
    };
    rows.push_back({run.name, state_of(run), text_in(run.start, "model"),
                    text_in(run.start, "data"), of_start("ranks"), of_start("threads"),
                    of_start("nodes"), of_start("seed"), of_end("steps", 0),
                    of_end("final_accuracy", 2), of_end("training_seconds", 1),
                    of_end("peak_bytes", 1, 1.0 / (1 << 20)), list_in(run.start, "hosts"),
                    list_in(run.start, "injected")});
  }
  return page_table("Runs", "What each run directory says of itself.", columns, rows);
}

Json differences_table(const std::vector<ReportedRun>& runs, const std::vector<Variant>& variants) {
  Json columns = Json::array({{{"text", "key"}, {"right", false}}});
  for (const Variant& variant : variants) {
    columns.push_back({{"text", variant.label}, {"right", false}});
  }
  Json rows = Json::array();
  for (const Difference& difference : differences_of(runs, variants)) {
    Json row = Json::array({difference.key});
    for (const std::string& value : difference.values) row.push_back(value);
    rows.push_back(std::move(row));
  }
  return page_table("Differences of the configurations",
                    "Keys that are not the same in all; the seed is left out.", columns, rows);
}

// The script colours curves by variant, so that the seeds of one look alike.
std::vector<std::size_t> variant_of_runs(const std::vector<Variant>& variants, std::size_t runs) {
  std::vector<std::size_t> of(runs);
  for (std::size_t variant = 0; variant < variants.size(); ++variant) {
    for (const std::size_t run : variants[variant].runs) of[run] = variant;
  }
  return of;
}

// A kind of curve for which no run has an event is left out, as windows of runs that are not lazy.
Json curves_of(const std::vector<ReportedRun>& runs) {
  Json curves = Json::array();
  for (const CurveKind& kind : curve_kinds()) {
    Json series = Json::array();
    for (std::size_t run = 0; run < runs.size(); ++run) {
      Json curve = curve_of(runs[run], kind);
      if (curve.is_null()) continue;
      curve["run"] = run;
      series.push_back(std::move(curve));
    }
    if (series.empty()) continue;
    curves.push_back({{"title", kind.title},
                      {"unit", kind.unit},
                      {"about", kind.about},
                      {"zero", kind.from_zero},
                      {"series", std::move(series)}});
  }
  return curves;
}

std::vector<std::string> problems_of(const std::vector<ReportedRun>& runs) {
  std::vector<std::string> problems;
  for (const ReportedRun& run : runs) {
    problems.insert(problems.end(), run.problems.begin(), run.problems.end());
  }
  return problems;
}

}  // namespace

// All that the script shows. Texts are made here, so that the script only places them.
Json page_data(const std::string& title, const std::vector<ReportedRun>& runs) {
  std::vector<Variant> variants = variants_of(runs);
  const std::vector<std::size_t> of_runs = variant_of_runs(variants, runs.size());
  const Advice advice = advise(runs, variants);
  Json data = {{"title", title},
               {"version", RONDO_VERSION},
               {"advice",
                {{"answer", advice.answer},
                 {"notes", advice.notes},
                 {"summary", summary_of(variants, advice)}}},
               {"curves", curves_of(runs)},
               {"tables", Json::array({runs_table(runs)})},
               {"problems", problems_of(runs)},
               {"runs", Json::array()},
               {"variants", Json::array()}};
  for (std::size_t run = 0; run < runs.size(); ++run) {
    data["runs"].push_back({{"name", runs[run].name}, {"variant", of_runs[run]}});
  }
  for (const Variant& variant : variants) data["variants"].push_back(variant.label);
  if (variants.size() > 1) data["tables"].push_back(differences_table(runs, variants));
  return data;
}

std::string page_of(const Json& data) {
  // The template is valid by itself, with this object as its data.
  constexpr std::string_view place = "{\"place\": \"of the data\"}";
  // Names of files may be no UTF-8: such bytes are replaced.
  const std::string json = data.dump(-1, ' ', false, Json::error_handler_t::replace);
  const std::size_t at = page_template.find(place);
  std::string page(page_template.substr(0, at));
  for (const char c : json) {
    if (c == '<') {
      page += "\\u003c";
    } else {
      page += c;
    }
  }
  return page += page_template.substr(at + place.size());
}

}  // namespace rondo::tools

// Findings as text for people, and as JSON for programs and for the doctor that has asked another
// host: it reads the same JSON back.
//
// Each check has a section in the documents. Its anchor follows from the name of the check, and a
// test compares all of them with the headings.

#include "doctor/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <sstream>

#include "command.hpp"
#include "table.hpp"

namespace rondo::tools {
namespace {

using OrderedJson = nlohmann::ordered_json;

const Choices<Level> levels = {{"ok", Level::ok},
                               {"note", Level::note},
                               {"warning", Level::warning},
                               {"problem", Level::problem}};

constexpr std::size_t width = 100;

// `text` broken into lines that begin with `indent` blanks; the first begins with `start` instead.
std::string wrapped(const std::string& start, const std::string& text, std::size_t indent) {
  std::istringstream words(text);
  std::string lines;
  std::string line = start;
  line.resize(std::max(line.size(), indent), ' ');
  bool empty = true;
  for (std::string word; words >> word;) {
    if (!empty && line.size() + 1 + word.size() > width) {
      lines += line + "\n";
      line.assign(indent, ' ');
      empty = true;
    }
    line += (empty ? "" : " ") + word;
    empty = false;
  }
  return lines + line + "\n";
}

OrderedJson to_json(const Finding& finding) {
  return {{"check", finding.check},
          {"host", finding.host},
          {"level", name_of(levels, finding.level)},
          {"found", finding.found},
          {"source", finding.source},
          {"means", finding.means},
          {"advice", finding.advice},
          {"section", section_of(finding.check)},
          {"values", finding.values}};
}

Finding finding_of(const OrderedJson& json) {
  Finding finding;
  finding.check = json.at("check");
  finding.host = json.at("host");
  finding.found = json.at("found");
  finding.source = json.at("source");
  finding.means = json.at("means");
  finding.advice = json.at("advice");
  for (const auto& [name, level] : levels) {
    if (json.at("level") == name) finding.level = level;
  }
  finding.values = json.at("values");
  return finding;
}

}  // namespace

int DoctorReport::count(Level level) const {
  return static_cast<int>(std::ranges::count(findings, level, &Finding::level));
}

// Checks of one kind share a section.
std::string section_of(const std::string& check) {
  std::string anchor = check;
  if (check.starts_with("link_") && check != "link_between") anchor = "links_of_a_host";
  if (check == "link_between") anchor = "links_between_hosts";
  if (check == "kernel" || check == "kernels_together") anchor = "speed_of_kernels";
  if (check == "reach") anchor = "hosts_and_versions";
  std::ranges::replace(anchor, '_', '-');
  return "docs/troubleshooting.md#" + anchor;
}

std::string as_text(const Finding& finding, bool verbose) {
  constexpr std::size_t indent = 9;
  constexpr std::size_t deeper = 17;
  std::string text =
      wrapped(name_of(levels, finding.level), finding.check + ": " + finding.found, indent);
  if (finding.level == Level::ok && !verbose) return text;
  const std::array<std::pair<const char*, std::string>, 4> parts = {
      {{"source", finding.source},
       {"means", finding.means},
       {"advice", finding.advice},
       {"see", section_of(finding.check)}}};
  for (const auto& [name, part] : parts) {
    if (part.empty()) continue;
    text += wrapped(std::string(indent, ' ') + name, part, deeper);
  }
  return text;
}

std::string summary_of(const DoctorReport& report) {
  return fmt::format(
      "{}, {}, {}; {} found nothing", counted(report.count(Level::problem), "problem"),
      counted(report.count(Level::warning), "warning"), counted(report.count(Level::note), "note"),
      counted(report.count(Level::ok), "check"));
}

// Texts of the kernel, a host or a library need not be UTF-8, as JSON has to be: other bytes become
// U+FFFD.
std::string as_json(const DoctorReport& report) {
  OrderedJson findings = OrderedJson::array();
  for (const Finding& finding : report.findings) findings.push_back(to_json(finding));
  return OrderedJson({{"format", 1},
                      {"rondo", report.version},
                      {"hosts", report.hosts},
                      {"problems", report.count(Level::problem)},
                      {"warnings", report.count(Level::warning)},
                      {"notes", report.count(Level::note)},
                      {"findings", findings}})
      .dump(2, ' ', false, OrderedJson::error_handler_t::replace);
}

std::optional<DoctorReport> parse_report(const std::string& text) {
  const OrderedJson json = OrderedJson::parse(text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  DoctorReport report;
  try {
    report.version = json.at("rondo");
    report.hosts = json.at("hosts").get<std::vector<std::string>>();
    for (const OrderedJson& finding : json.at("findings"))
      report.findings.push_back(finding_of(finding));
  } catch (const OrderedJson::exception&) {
    // The report is of another version, or of another program.
    return std::nullopt;
  }
  return report;
}

}  // namespace rondo::tools

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "doctor/finding.hpp"

namespace rondo::tools {

/// The final report of `rondo doctor`.
struct DoctorReport {
  std::string version = {};
  std::vector<std::string> hosts = {};
  std::vector<Finding> findings = {};

  [[nodiscard]] int count(Level level) const;
};

/// The section of the documents that explains a check: "docs/troubleshooting.md#open-files".
[[nodiscard]] std::string section_of(const std::string& check);

/// A line for what is in order, and all that is known about what is not. With `verbose` about
/// everything.
[[nodiscard]] std::string as_text(const Finding& finding, bool verbose);

/// "1 problem, 2 warnings, 0 notes; 13 checks found nothing"
[[nodiscard]] std::string summary_of(const DoctorReport& report);

/// One object, for programs and for the doctor on another host.
[[nodiscard]] std::string as_json(const DoctorReport& report);

/// The report that as_json() wrote; nothing when `text` is not that.
[[nodiscard]] std::optional<DoctorReport> parse_report(const std::string& text);

}  // namespace rondo::tools

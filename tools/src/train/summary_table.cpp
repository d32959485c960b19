#include "train/summary_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <string_view>

namespace rondo::tools {
namespace {

double percent(double part, double whole) { return whole > 0.0 ? 100.0 * part / whole : 0.0; }

std::string mebibytes(std::uint64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1024.0 * 1024.0));
}

// "40 % less than synchronous".
std::string against(std::uint64_t used, std::uint64_t synchronous) {
  const auto mine = static_cast<double>(used);
  const auto theirs = static_cast<double>(synchronous);
  if (used == synchronous || synchronous == 0) return "as synchronous";
  if (used < synchronous) return fmt::format("{:.2f} % less", percent(theirs - mine, theirs));
  return fmt::format("{:.2f} % more", percent(mine - theirs, theirs));
}

std::string row(std::string_view name, const std::string& value, const std::string& synchronous,
                const std::string& difference) {
  return fmt::format("\n  {:<18}{:>16}{:>16}{}{}", name, value, synchronous,
                     difference.empty() ? "" : "   ", difference);
}

std::string reductions(const train::RunSummary& summary) {
  const std::uint64_t synchronous = summary.synchronous_reductions;
  std::string difference = against(summary.global_reductions, synchronous);
  if (summary.global_reductions < synchronous) {
    difference += fmt::format(", {} avoided", synchronous - summary.global_reductions);
  }
  std::string text = row("global reductions", fmt::format("{}", summary.global_reductions),
                         fmt::format("{}", synchronous), difference);
  if (summary.local_reductions > 0) {
    text += row("local reductions", fmt::format("{}", summary.local_reductions), "0", "");
  }
  if (summary.lazy_iterations > 0) {
    const auto iterations = static_cast<double>(summary.lazy_iterations);
    const double saved = iterations - static_cast<double>(summary.lazy_reductions);
    text += row("of lazy layers", fmt::format("{}", summary.lazy_reductions),
                fmt::format("{}", summary.lazy_iterations),
                fmt::format("{:.2f} % saved", percent(saved, iterations)));
  }
  return text;
}

}  // namespace

std::string format_summary(const train::RunSummary& summary) {
  std::string text =
      fmt::format("  {:<18}{:>16}{:>16}", "communication", summary.scheme, "synchronous");
  text += reductions(summary);
  text += row("bytes reduced", mebibytes(summary.global_bytes + summary.local_bytes),
              mebibytes(summary.synchronous_bytes),
              against(summary.global_bytes + summary.local_bytes, summary.synchronous_bytes));
  text +=
      row("bytes sent", mebibytes(summary.bytes_sent), mebibytes(summary.synchronous_bytes_sent),
          against(summary.bytes_sent, summary.synchronous_bytes_sent));
  text += fmt::format(
      "\n  of {:.1f} s of training {:.1f} s ({:.1f} %) were communication and {:.1f} s ({:.1f} %) "
      "waiting",
      summary.training_seconds, summary.communication_seconds,
      percent(summary.communication_seconds, summary.training_seconds), summary.wait_seconds,
      percent(summary.wait_seconds, summary.training_seconds));
  if (!summary.injected.empty()) {
    text += fmt::format("\n  injected delays: {}", fmt::join(summary.injected, "; "));
  }
  return text;
}

}  // namespace rondo::tools

#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compare/runs.hpp"
#include "table.hpp"

namespace rondo::tools {

/// Mean and standard deviation of a sample.
struct MeanAndDeviation {
  double mean = 0.0;
  std::optional<double> deviation = {};  ///< with n - 1; one value has none
};

/// Nothing for no values.
[[nodiscard]] std::optional<MeanAndDeviation> mean_and_deviation(std::span<const double> values);

/// Seconds of training until the end of the first epoch whose accuracy is at least `accuracy`
/// percent; nothing when there is none.
[[nodiscard]] std::optional<double> seconds_to_accuracy(const RunRecord& run, double accuracy);

/// A row of the table: the completed runs of one item. Means are over these runs.
struct SchemeSummary {
  std::string label = {};
  std::size_t seeds = 0;  ///< that were asked for
  std::size_t done = 0;
  std::optional<MeanAndDeviation> final_accuracy = {};
  std::optional<MeanAndDeviation> best_accuracy = {};
  std::optional<double> global_reductions = {};
  std::optional<double> local_reductions = {};
  std::optional<double> bytes_sent = {};
  std::optional<double> global_bytes = {};
  std::optional<double> local_bytes = {};
  std::size_t reached = 0;                ///< runs that reached the accuracy
  std::optional<double> time_to_it = {};  ///< seconds, mean of those
  std::optional<double> seconds = {};     ///< of training
};

/// `accuracy`: in percent; nothing: not asked for.
[[nodiscard]] SchemeSummary summarise(std::string label, std::size_t seeds,
                                      std::span<const RunRecord> completed,
                                      std::optional<double> accuracy);

/// What all rows have in common.
struct TableHead {
  std::string conditions = {};          ///< "2 ranks x 1 thread"; empty: not known
  std::optional<double> accuracy = {};  ///< percent, that times are taken to
};

/// A row for each scheme. In text columns that no run has values for are left out, and accuracies
/// stand with their deviations; CSV has every number in a column of its own, and the head.
[[nodiscard]] Table comparison_table(const TableHead& head, const std::vector<SchemeSummary>& rows);

}  // namespace rondo::tools

#include "compare/summary.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

namespace rondo::tools {
namespace {

using Runs = std::span<const RunRecord>;

double final_accuracy(const RunRecord& run) { return run.epochs.back().accuracy; }

double best_accuracy(const RunRecord& run) {
  double best = final_accuracy(run);
  for (const EpochRecord& epoch : run.epochs) best = std::fmax(best, epoch.accuracy);
  return best;
}

std::vector<double> of_each(Runs runs, const std::function<double(const RunRecord&)>& value) {
  std::vector<double> values;
  std::ranges::transform(runs, std::back_inserter(values), value);
  return values;
}

std::optional<double> mean(std::span<const double> values) {
  const auto both = mean_and_deviation(values);
  return both ? std::optional(both->mean) : std::nullopt;
}

// The mean over runs of the sum over epochs.
std::optional<double> mean_total(Runs runs, double EpochRecord::* member) {
  return mean(of_each(runs, [member](const RunRecord& run) {
    double total = 0.0;
    for (const EpochRecord& epoch : run.epochs) total += epoch.*member;
    return total;
  }));
}

// The same of what some runs may not have recorded; then there is none.
std::optional<double> mean_total(Runs runs, std::optional<double> EpochRecord::* member) {
  std::vector<double> totals;
  for (const RunRecord& run : runs) {
    double total = 0.0;
    for (const EpochRecord& epoch : run.epochs) {
      if (!(epoch.*member)) return std::nullopt;
      total += *(epoch.*member);
    }
    totals.push_back(total);
  }
  return mean(totals);
}

}  // namespace

std::optional<MeanAndDeviation> mean_and_deviation(std::span<const double> values) {
  if (values.empty()) return std::nullopt;
  const auto n = static_cast<double>(values.size());
  MeanAndDeviation result;
  for (const double value : values) result.mean += value / n;
  if (values.size() == 1) return result;
  double squares = 0.0;
  for (const double value : values) squares += (value - result.mean) * (value - result.mean);
  result.deviation = std::sqrt(squares / (n - 1));
  return result;
}

std::optional<double> seconds_to_accuracy(const RunRecord& run, double accuracy) {
  double seconds = 0.0;
  for (const EpochRecord& epoch : run.epochs) {
    seconds += epoch.seconds;
    if (epoch.accuracy >= accuracy) return seconds;
  }
  return std::nullopt;
}

SchemeSummary summarise(std::string label, std::size_t seeds, Runs completed,
                        std::optional<double> accuracy) {
  SchemeSummary row{.label = std::move(label), .seeds = seeds, .done = completed.size()};
  row.final_accuracy = mean_and_deviation(of_each(completed, final_accuracy));
  row.best_accuracy = mean_and_deviation(of_each(completed, best_accuracy));
  row.global_reductions = mean_total(completed, &EpochRecord::global_reductions);
  row.local_reductions = mean_total(completed, &EpochRecord::local_reductions);
  row.bytes_sent = mean_total(completed, &EpochRecord::bytes_sent);
  row.global_bytes = mean_total(completed, &EpochRecord::global_bytes);
  row.local_bytes = mean_total(completed, &EpochRecord::local_bytes);
  row.seconds = mean_total(completed, &EpochRecord::seconds);
  std::vector<double> times;
  for (const RunRecord& run : completed) {
    const auto time = accuracy ? seconds_to_accuracy(run, *accuracy) : std::nullopt;
    if (time) times.push_back(*time);
  }
  row.reached = times.size();
  row.time_to_it = mean(times);
  return row;
}

}  // namespace rondo::tools

// What the completed runs of each scheme come to, and the table that shows it.
//
// Totals over a run's epochs are made first, then means over runs; deviations are those of a
// sample. A run that did not record a number leaves the mean out instead of counting as zero.

#include "compare/summary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

namespace rondo::tools {
namespace {

using Runs = std::span<const RunRecord>;

double final_accuracy(const RunRecord& run) { return run.epochs.back().accuracy; }

// fmax ignores an accuracy that is NaN.
double best_accuracy(const RunRecord& run) {
  double best = final_accuracy(run);
  for (const EpochRecord& epoch : run.epochs) best = std::fmax(best, epoch.accuracy);
  return best;
}

// One number of each run.
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

// "88.00 +- 2.83"; without a deviation for a single run.
std::string percent(const std::optional<MeanAndDeviation>& value) {
  if (!value) return "-";
  if (!value->deviation) return fmt::format("{:.2f}", value->mean);
  return fmt::format("{:.2f} +- {:.2f}", value->mean, *value->deviation);
}

// How long it took to the accuracy, and how many runs that is the mean of when not all got there.
std::string time_to_it(const SchemeSummary& row) {
  if (row.reached == 0) return "-";
  const std::string seconds = fmt::format("{:.1f}", *row.time_to_it);
  return row.reached == row.done ? seconds
                                 : fmt::format("{} ({}/{})", seconds, row.reached, row.done);
}

// The parts of an accuracy, as two columns of CSV.
auto mean_of(std::optional<MeanAndDeviation> SchemeSummary::* member) {
  return [member](const SchemeSummary& row) {
    return row.*member ? std::optional((row.*member)->mean) : std::nullopt;
  };
}
auto deviation_of(std::optional<MeanAndDeviation> SchemeSummary::* member) {
  return [member](const SchemeSummary& row) {
    return row.*member ? (row.*member)->deviation : std::nullopt;
  };
}

}  // namespace

// Two passes: the difference of large squares would lose digits.
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

// All means are over the runs that have completed, however many were asked for.
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

Table comparison_table(const TableHead& head, const std::vector<SchemeSummary>& rows) {
  using Row = SchemeSummary;
  // The same in every row.
  const auto always = [](const auto& value) { return [value](const Row&) { return value; }; };
  const auto heading_if_any = [&](std::optional<double> Row::* member, const char* heading) {
    const bool any =
        std::ranges::any_of(rows, [&](const Row& row) { return (row.*member).has_value(); });
    return std::string(any ? heading : "");
  };
  TableOf table(rows);
  table.add({"scheme", "scheme", Align::left}, &Row::label)
      .add({.heading = "accuracy %"}, [](const Row& row) { return percent(row.final_accuracy); })
      .add({.name = "final_accuracy"}, mean_of(&Row::final_accuracy))
      .add({.name = "final_accuracy_deviation"}, deviation_of(&Row::final_accuracy))
      .add({.heading = "best %"}, [](const Row& row) { return percent(row.best_accuracy); })
      .add({.name = "best_accuracy"}, mean_of(&Row::best_accuracy))
      .add({.name = "best_accuracy_deviation"}, deviation_of(&Row::best_accuracy))
      .add({.heading = "seeds"},
           [](const Row& row) { return fmt::format("{}/{}", row.done, row.seeds); })
      .add({.name = "seeds_done"}, &Row::done)
      .add({.name = "seeds"}, &Row::seeds)
      .add({"global_reductions", "global reductions"}, &Row::global_reductions)
      .add({"local_reductions", "local reductions"}, &Row::local_reductions)
      .add({"bytes_sent", "bytes sent"}, &Row::bytes_sent)
      .add({"global_bytes", heading_if_any(&Row::global_bytes, "global bytes")}, &Row::global_bytes)
      .add({"local_bytes", heading_if_any(&Row::local_bytes, "local bytes")}, &Row::local_bytes)
      .add({.name = "accuracy_asked_for"}, always(head.accuracy))
      .add({.name = "seeds_that_reached_it"}, [&](const Row& row) {
        return head.accuracy ? std::optional(row.reached) : std::nullopt;
      });
  if (head.accuracy) {
    table.add({.heading = fmt::format("s to {:g} %", *head.accuracy)}, time_to_it);
  }
  table.add({.name = "seconds_to_it"}, &Row::time_to_it)
      .add({.name = "seconds", .heading = "s", .decimals = 1}, &Row::seconds)
      .add({.name = "conditions"}, always(head.conditions));
  return table;
}

}  // namespace rondo::tools

#pragma once

#include "compare/plan.hpp"

namespace rondo::tools {

/// Runs what has not run yet, one after the other, and prints the table to stdout; a line for every
/// run goes to stderr, the table also to compare.csv in the folder. A run that fails does not keep
/// the others from running. Returns the status of the first that failed, 128 + n when signal n
/// ended the comparison, or 0. Throws UsageError before anything runs.
[[nodiscard]] int compare(const CompareRequest& request);

/// Says on stdout what compare() would run, and changes nothing. Returns 0.
[[nodiscard]] int list_runs(const CompareRequest& request);

/// Prints the table of what has run, and writes nothing. Returns 0.
[[nodiscard]] int print_table(const CompareRequest& request);

}  // namespace rondo::tools

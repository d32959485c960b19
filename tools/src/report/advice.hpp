#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "compare/runs.hpp"
#include "report/run.hpp"

namespace rondo::tools {

/// Runs that differ in nothing but their seed.
struct Variant {
  std::string label = {};
  std::string scheme = {};
  std::vector<std::size_t> runs = {};  ///< indices; never empty
  std::vector<std::size_t> completed = {};
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

}  // namespace rondo::tools

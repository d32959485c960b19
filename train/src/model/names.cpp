// Words of users against names that exist: the nearest name for "did you mean", and patterns with *
// and ?. Both are used for keys, layers, models and tensors alike.

#include "model/names.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace rondo::train {
namespace {

constexpr std::size_t longest_word = 64;  // longer ones are no typing errors

// A third of a word may be wrong, and two letters of a short one.
std::size_t tolerance(std::string_view word) { return std::max<std::size_t>(2, word.size() / 3); }

}  // namespace

// The distance of Damerau and Levenshtein (optimal string alignment), row by row of its table:
// row i holds the distances of a's first i characters to all beginnings of b.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> above(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, above);
    std::swap(above, row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, replaced});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  if (word.size() > longest_word) return {};
  std::size_t least = tolerance(word) + 1;
  std::string best;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    // Nothing of a word that is all replaced is left to recognise.
    if (distance >= least || distance >= std::max(word.size(), candidate.size())) continue;
    least = distance;
    best = candidate;
  }
  return best;
}

std::string suggest(std::string_view word, std::span<const std::string> candidates) {
  const std::string near = nearest(word, candidates);
  if (!near.empty()) return fmt::format("did you mean '{}'?", near);
  return fmt::format("choose one of {}", fmt::join(candidates, ", "));
}

// The text behind the last * is tried at every place: a later * makes all earlier choices good.
bool matches(std::string_view pattern, std::string_view name) {
  constexpr std::size_t none = std::string_view::npos;
  std::size_t star = none;     // the last * so far
  std::size_t tried_from = 0;  // where what follows it was tried
  std::size_t p = 0;
  std::size_t n = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      tried_from = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != none) {
      p = star + 1;
      n = ++tried_from;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == none;
}

}  // namespace rondo::train

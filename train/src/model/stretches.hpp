#pragma once

#include <cstddef>

#include <rondo/train/parameters.hpp>

namespace rondo::train {

// Calls visit(in_part, in_whole, size) for every stretch of a parameter: elements that are adjacent
// in the part that a rank holds and in the whole parameter. A part is as many stretches as it has
// rows (filters, outputs, or elements of a vector); a parameter that is not cut is one.
template <typename Visit>
void for_each_stretch(const Parameter& parameter, Visit visit) {
  if (parameter.whole.empty()) {
    visit(std::size_t{0}, std::size_t{0}, parameter.size());
    return;
  }
  const auto whole = [&](std::size_t i) { return static_cast<std::size_t>(parameter.whole[i]); };
  const auto first = [&](std::size_t i) { return static_cast<std::size_t>(parameter.first[i]); };
  const auto rows = static_cast<std::size_t>(parameter.shape[0]);
  if (rows == 0) return;
  std::size_t row = 1;     // elements of a row of the whole
  std::size_t inside = 1;  // elements of a column
  for (std::size_t i = 1; i < parameter.whole.size(); ++i) row *= whole(i);
  for (std::size_t i = 2; i < parameter.whole.size(); ++i) inside *= whole(i);
  const std::size_t skipped = parameter.whole.size() > 1 ? first(1) * inside : 0;
  const std::size_t size = parameter.size() / rows;
  for (std::size_t i = 0; i < rows; ++i) visit(i * size, (first(0) + i) * row + skipped, size);
}

}  // namespace rondo::train

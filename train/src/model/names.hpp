#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace rondo::train {

// How many characters must be inserted, removed, replaced or swapped with their neighbour to make
// `b` of `a`.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

// The candidate that `word` was probably meant to be; empty when none is near.
[[nodiscard]] std::string nearest(std::string_view word, std::span<const std::string> candidates);

// "did you mean 'X'?" when a candidate is near, else "choose one of X, Y, Z".
[[nodiscard]] std::string suggest(std::string_view word, std::span<const std::string> candidates);

/// Does all of `name` match `pattern`, where * stands for any characters, also none, and ? for any
/// one?
[[nodiscard]] bool matches(std::string_view pattern, std::string_view name);

}  // namespace rondo::train

#pragma once

#include <string>
#include <string_view>

#include <rondo/train/layer_split.hpp>

namespace rondo::train {

// The most parts into which one dimension can be cut.
inline constexpr int largest_part_count = 4096;

// "sample", "group", "height=A width=B" or "channel=A filter=B", where either part may be left out.
// Throws std::invalid_argument that says what is wrong with `text`.
[[nodiscard]] LayerSplit read_split(std::string_view text);

// The same as what a configuration says.
[[nodiscard]] std::string to_text(const LayerSplit& split);

// What read_split() throws; empty if nothing.
[[nodiscard]] std::string complaint_about_split(std::string_view text);

}  // namespace rondo::train

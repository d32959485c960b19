#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <rondo/train/model.hpp>

namespace rondo::train {

// The layouts of all values that are still to be read, by their numbers: a state of the search.
// A byte for each value, in order.
using OpenLayouts = std::uint64_t;

constexpr std::size_t most_open_values = 8;

[[nodiscard]] constexpr int layout_in(OpenLayouts state, std::size_t slot) noexcept {
  return static_cast<int>((state >> (8 * slot)) & 0xFFU);
}

// What a layer does to a state.
struct OpenStep {
  std::size_t x = 0;                         // the slot of its first input
  std::optional<std::size_t> residual = {};  // of its second
  // Where the values of the next state come from: a slot, or (none) from this layer.
  std::vector<std::optional<std::size_t>> next = {};

  [[nodiscard]] OpenLayouts apply(OpenLayouts state, int y) const noexcept;
};

// A step for each layer. At first value 0 is open, at last the model's last value alone. Throws
// std::invalid_argument where more than 8 are open.
[[nodiscard]] std::vector<OpenStep> open_steps(const Model& model);

}  // namespace rondo::train

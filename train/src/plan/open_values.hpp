#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <rondo/train/model.hpp>

namespace rondo::train {

// The layouts of all values that are still to be read, by their numbers: a state of the search. Two
// bytes for each value, in order: how it was written, and how it lies besides since a reader wanted
// it otherwise (of several such copies, the last).
using OpenLayouts = std::uint64_t;

constexpr std::size_t most_open_values = 4;
constexpr int no_copy = 0xFE;
constexpr std::size_t most_layouts = 0xFE;  // two more numbers mean something else

[[nodiscard]] constexpr int layout_in(OpenLayouts state, std::size_t slot) noexcept {
  return static_cast<int>((state >> (16 * slot)) & 0xFFU);
}
[[nodiscard]] constexpr int copy_in(OpenLayouts state, std::size_t slot) noexcept {
  return static_cast<int>((state >> (16 * slot + 8)) & 0xFFU);
}

// One value's part of a state.
[[nodiscard]] constexpr OpenLayouts open_value(int layout, int copy, std::size_t slot) noexcept {
  return static_cast<OpenLayouts>(layout | (copy << 8)) << (16 * slot);
}

[[nodiscard]] constexpr OpenLayouts replaced(OpenLayouts state, std::size_t slot, int layout,
                                             int copy) noexcept {
  return (state & ~(OpenLayouts{0xFFFF} << (16 * slot))) | open_value(layout, copy, slot);
}

// What a layer does to a state.
struct OpenStep {
  std::size_t x = 0;                         // the slot of its first input
  std::optional<std::size_t> residual = {};  // of its second
  // Where the values of the next state come from: a slot, or (none) from this layer.
  std::vector<std::optional<std::size_t>> next = {};

  // The next state, where the layer has written `y`.
  [[nodiscard]] OpenLayouts apply(OpenLayouts state, int y) const noexcept;
};

// A step for each layer. At first value 0 is open, at last the model's last value alone. Throws
// std::invalid_argument where more than 4 are open.
[[nodiscard]] std::vector<OpenStep> open_steps(const Model& model);

}  // namespace rondo::train

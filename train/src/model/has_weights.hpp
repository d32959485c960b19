#pragma once

#include <variant>

#include <rondo/train/model.hpp>

namespace rondo::train {

[[nodiscard]] inline bool is_convolution(const LayerSpec& layer) {
  return std::holds_alternative<ConvolutionLayer>(layer.kind);
}

[[nodiscard]] inline bool is_fully_connected(const LayerSpec& layer) {
  return std::holds_alternative<FullyConnectedLayer>(layer.kind);
}

/// Such a layer is given a split on a grid; the others follow.
[[nodiscard]] inline bool has_weights(const LayerSpec& layer) {
  return is_convolution(layer) || is_fully_connected(layer);
}

}  // namespace rondo::train

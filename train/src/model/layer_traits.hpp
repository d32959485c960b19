#pragma once

#include <cstdint>
#include <variant>

#include <rondo/train/model.hpp>

namespace rondo::train {

// What kinds of layers differ in, beside their own numbers. Who adds a kind has to say all of it
// here, or nothing compiles. Other sources ask these functions, or visit the variant with an
// overload for every kind; none asks for a single kind, which would let a new one pass unseen.

/// The weights of a layer, as a grid splits them.
enum class Weights : std::uint8_t {
  none,     ///< the layer has no split: it follows the layout of its input
  filters,  ///< of a convolution: for each channel and filter a window
  outputs,  ///< of a fully connected layer: for each output the whole image
};

struct LayerTraits {
  Weights weights;
  bool batch_statistics;  ///< normalises by moments of the batch, and keeps running ones
  bool averages_images;   ///< its outputs are means of whole images
};

struct TraitsOfKind {
  LayerTraits operator()(const ConvolutionLayer& /*layer*/) const {
    return {.weights = Weights::filters, .batch_statistics = false, .averages_images = false};
  }
  LayerTraits operator()(const BatchNormLayer& /*layer*/) const {
    return {.weights = Weights::none, .batch_statistics = true, .averages_images = false};
  }
  LayerTraits operator()(const PoolingLayer& /*layer*/) const {
    return {.weights = Weights::none, .batch_statistics = false, .averages_images = false};
  }
  LayerTraits operator()(const GlobalAveragePoolingLayer& /*layer*/) const {
    return {.weights = Weights::none, .batch_statistics = false, .averages_images = true};
  }
  LayerTraits operator()(const FullyConnectedLayer& /*layer*/) const {
    return {.weights = Weights::outputs, .batch_statistics = false, .averages_images = false};
  }
};

[[nodiscard]] inline LayerTraits traits_of(const LayerKind& kind) {
  return std::visit(TraitsOfKind{}, kind);
}

[[nodiscard]] inline bool is_convolution(const LayerSpec& layer) {
  return traits_of(layer.kind).weights == Weights::filters;
}

[[nodiscard]] inline bool is_fully_connected(const LayerSpec& layer) {
  return traits_of(layer.kind).weights == Weights::outputs;
}

/// Such a layer is given a split on a grid; the others follow.
[[nodiscard]] inline bool has_weights(const LayerSpec& layer) {
  return traits_of(layer.kind).weights != Weights::none;
}

}  // namespace rondo::train

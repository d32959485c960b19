#include <stdexcept>
#include <string>
#include <variant>

#include <rondo/train/model.hpp>

#include "model/specs.hpp"

namespace rondo::train {
namespace {

std::string text(const tensor::Shape& shape) {
  return std::to_string(shape.h) + "x" + std::to_string(shape.w) + "x" + std::to_string(shape.c);
}

[[noreturn]] void refuse(const LayerSpec& layer, const std::string& what) {
  throw std::invalid_argument("layer " + layer.name + ": " + what);
}

struct InputsOfKind {
  std::size_t operator()(const BatchNormLayer& layer) const { return layer.residual ? 2 : 1; }
  std::size_t operator()(const ConvolutionLayer& /*layer*/) const { return 1; }
  std::size_t operator()(const PoolingLayer& /*layer*/) const { return 1; }
  std::size_t operator()(const GlobalAveragePoolingLayer& /*layer*/) const { return 1; }
  std::size_t operator()(const FullyConnectedLayer& /*layer*/) const { return 1; }
};

tensor::Shape output_of(const tensor::BatchNormSpec& spec) { return spec.input; }

template <typename Spec>
tensor::Shape output_of(const Spec& spec) {
  return spec.output();
}

// The window of a layer must fit, and its step must be positive.
template <typename Spec>
void check_window(const LayerSpec& layer, const Spec& spec, std::int64_t h, std::int64_t w) {
  if (h < 1 || w < 1 || spec.stride < 1) refuse(layer, "window and stride must be positive");
  const bool fits = spec.input.h + spec.pad_top + spec.pad_bottom >= h &&
                    spec.input.w + spec.pad_left + spec.pad_right >= w;
  if (!fits) refuse(layer, "its window is larger than its input of " + text(spec.input));
}

void check(const LayerSpec& layer, const tensor::ConvolutionSpec& spec) {
  if (spec.filters < 1) refuse(layer, "needs at least one filter");
  check_window(layer, spec, spec.kernel_h, spec.kernel_w);
}

void check(const LayerSpec& layer, const tensor::PoolingSpec& spec) {
  check_window(layer, spec, spec.window_h, spec.window_w);
}

void check(const LayerSpec& layer, const tensor::FullyConnectedSpec& spec) {
  if (spec.outputs < 1) refuse(layer, "needs at least one output");
}

void check(const LayerSpec& /*layer*/, const tensor::BatchNormSpec& /*spec*/) {}

void check_inputs(const LayerSpec& layer, const std::vector<tensor::Shape>& known) {
  const std::size_t wanted = std::visit(InputsOfKind{}, layer.kind);
  if (layer.inputs.size() != wanted) {
    refuse(layer, "has " + std::to_string(layer.inputs.size()) + " inputs and needs " +
                      std::to_string(wanted));
  }
  for (const ValueId input : layer.inputs) {
    if (input >= known.size()) {
      refuse(layer, "reads value " + std::to_string(input) + ", which no earlier layer writes");
    }
  }
  if (wanted == 2 && known[layer.inputs[0]] != known[layer.inputs[1]]) {
    refuse(layer, "adds " + text(known[layer.inputs[1]]) + " to " + text(known[layer.inputs[0]]));
  }
}

// Backward needs a gradient for every value, so each must be read, and only the last may not.
void check_consumers(const Model& model) {
  std::vector<bool> read(model.layers.size() + 1, false);
  for (const LayerSpec& layer : model.layers) {
    for (const ValueId input : layer.inputs) read[input] = true;
  }
  for (std::size_t i = 0; i + 1 < model.layers.size(); ++i) {
    if (!read[i + 1]) refuse(model.layers[i], "no layer reads its output");
  }
}

void check_logits(const Model& model, const tensor::Shape& logits) {
  if (logits.image() != model.classes || logits.c != model.classes) {
    refuse(model.layers.back(), "gives " + text(logits) + ", and the model " + model.name +
                                    " needs one logit for each of its " +
                                    std::to_string(model.classes) + " classes");
  }
}

}  // namespace

std::vector<tensor::Shape> shapes_of(const Model& model, std::int64_t n) {
  if (model.layers.empty() || model.input.image() < 1) {
    throw std::invalid_argument("model " + model.name + ": needs an input and a layer");
  }
  std::vector<tensor::Shape> shapes{model.input.with_n(n)};
  for (const LayerSpec& layer : model.layers) {
    check_inputs(layer, shapes);
    shapes.push_back(std::visit(
        [&](const auto& kind) {
          const auto spec = spec_of(kind, shapes[layer.inputs[0]]);
          check(layer, spec);
          return output_of(spec);
        },
        layer.kind));
  }
  check_consumers(model);
  check_logits(model, shapes.back());
  return shapes;
}

}  // namespace rondo::train

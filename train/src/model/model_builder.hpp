#pragma once

#include <string>
#include <utility>
#include <vector>

#include <rondo/train/model.hpp>

namespace rondo::train {

// Layers that several models are made of.
inline constexpr auto relu = tensor::Activation::relu;
inline constexpr BatchNormLayer norm_relu{};
inline constexpr BatchNormLayer norm_only{.activation = tensor::Activation::none};
inline constexpr BatchNormLayer norm_add_relu{.residual = true};

/// Writes a Model layer by layer; add() returns the value that the new layer writes.
class ModelBuilder {
 public:
  static constexpr ValueId input = 0;

  ModelBuilder(std::string name, tensor::Shape shape, std::int64_t classes)
      : model_{.name = std::move(name), .input = shape.with_n(1), .classes = classes} {}

  ValueId add(std::string name, LayerKind kind, ValueId x) {
    return append(std::move(name), kind, {x});
  }
  ValueId add(std::string name, LayerKind kind, ValueId x, ValueId residual) {
    return append(std::move(name), kind, {x, residual});
  }

  Model finish() { return std::move(model_); }

 private:
  ValueId append(std::string name, LayerKind kind, std::vector<ValueId> inputs) {
    model_.layers.push_back({.name = std::move(name), .kind = kind, .inputs = std::move(inputs)});
    return model_.layers.size();
  }

  Model model_;
};

}  // namespace rondo::train

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rondo/train/layer_type.hpp>

namespace rondo::train::test {

/// A kind of layer that the library does not know, by what a test needs of it. What is not given is
/// LayerType's default; the output has the input's shape.
struct OwnLayer {
  std::string text = "own";
  /// The kernel of an engine for an input; without it null, where only the description is used.
  std::function<std::unique_ptr<LayerKernel>(tensor::Engine&, const tensor::Shape&)> kernel = {};
  std::optional<LayerTraits> traits = {};
  std::optional<Windows> windows = {};
  std::vector<Parameter> learned = {};
  std::function<tensor::Shape(const tensor::Shape&)> output = {};
  std::function<LayerTraffic(const NodeLayout&)> traffic = {};
};

class OwnLayerType final : public LayerType {
 public:
  explicit OwnLayerType(OwnLayer layer) : layer_(std::move(layer)) {}

  std::string text() const override { return layer_.text; }
  LayerTraits traits() const noexcept override {
    return layer_.traits ? *layer_.traits : LayerType::traits();
  }
  std::optional<Windows> windows() const noexcept override {
    return layer_.windows ? layer_.windows : LayerType::windows();
  }
  tensor::Shape output(const tensor::Shape& input) const override {
    return layer_.output ? layer_.output(input) : input;
  }
  LayerParameters parameters(const tensor::Shape& input) const override {
    if (layer_.learned.empty()) return LayerType::parameters(input);
    return {.learned = layer_.learned, .statistics = {}};
  }
  std::unique_ptr<LayerKernel> kernel(tensor::Engine& engine, const tensor::Shape& input,
                                      bool /*input_gradient*/,
                                      KernelPurpose /*purpose*/) const override {
    return layer_.kernel ? layer_.kernel(engine, input) : nullptr;
  }
  LayerTraffic traffic(const NodeLayout& layout, bool input_gradient) const override {
    return layer_.traffic ? layer_.traffic(layout) : LayerType::traffic(layout, input_gradient);
  }

 private:
  OwnLayer layer_;
};

inline std::shared_ptr<const LayerType> make_layer_type(const OwnLayer& layer) {
  return std::make_shared<OwnLayerType>(layer);
}

}  // namespace rondo::train::test

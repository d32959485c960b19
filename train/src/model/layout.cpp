#include <string>
#include <utility>

#include <rondo/train/model.hpp>

#include "model/specs.hpp"

namespace rondo::train {
namespace {

// Adds the parameters of one layer after another, densely.
class LayoutBuilder {
 public:
  void add(const std::string& name, const ConvolutionLayer& layer, const tensor::Shape& input) {
    const std::int64_t window = layer.kernel * layer.kernel;
    Parameter weight{.name = name + ".weight",
                     .shape = {layer.filters, input.c, layer.kernel, layer.kernel},
                     .initial = layer.initial,
                     .fan_in = input.c * window,
                     .fan_out = layer.filters * window};
    open_group(name);
    add_weight_and_bias(std::move(weight), layer.bias);
  }

  void add(const std::string& name, const FullyConnectedLayer& layer, const tensor::Shape& input) {
    Parameter weight{.name = name + ".weight",
                     .shape = {layer.outputs, input.image()},
                     .initial = Initial::uniform_fan_in,
                     .fan_in = input.image(),
                     .fan_out = layer.outputs};
    open_group(name);
    add_weight_and_bias(std::move(weight), true);
  }

  void add(const std::string& name, const BatchNormLayer& /*layer*/, const tensor::Shape& input) {
    open_group(name);
    add_parameter({.name = name + ".weight", .shape = {input.c}, .initial = Initial::ones});
    add_parameter({.name = name + ".bias", .shape = {input.c}, .initial = Initial::zeros});
    add_statistic({.name = name + ".running_mean", .shape = {input.c}, .initial = Initial::zeros});
    add_statistic({.name = name + ".running_var", .shape = {input.c}, .initial = Initial::ones});
  }

  // Poolings learn nothing.
  void add(const std::string& /*name*/, const PoolingLayer& /*layer*/,
           const tensor::Shape& /*input*/) {}
  void add(const std::string& /*name*/, const GlobalAveragePoolingLayer& /*layer*/,
           const tensor::Shape& /*input*/) {}

  ParameterLayout finish() { return std::move(layout_); }

 private:
  void open_group(const std::string& name) {
    layout_.groups.push_back({.name = name, .offset = layout_.parameter_count, .size = 0});
  }

  void add_weight_and_bias(Parameter weight, bool with_bias) {
    Parameter bias = weight;
    bias.name.replace(bias.name.rfind(".weight"), std::string::npos, ".bias");
    bias.shape = {weight.shape[0]};
    bias.initial = Initial::uniform_fan_in;
    add_parameter(std::move(weight));
    if (with_bias) add_parameter(std::move(bias));
  }

  void add_parameter(Parameter parameter) {
    parameter.offset = layout_.parameter_count;
    layout_.parameter_count += parameter.size();
    layout_.groups.back().size += parameter.size();
    layout_.parameters.push_back(std::move(parameter));
  }

  void add_statistic(Parameter statistic) {
    statistic.offset = layout_.statistic_count;
    layout_.statistic_count += statistic.size();
    layout_.statistics.push_back(std::move(statistic));
  }

  ParameterLayout layout_;
};

}  // namespace

ParameterLayout layout_of(const Model& model) {
  const std::vector<tensor::Shape> shapes = shapes_of(model, 1);
  LayoutBuilder builder;
  for (const LayerSpec& layer : model.layers) {
    std::visit([&](const auto& kind) { builder.add(layer.name, kind, shapes[layer.inputs[0]]); },
               layer.kind);
  }
  return builder.finish();
}

}  // namespace rondo::train

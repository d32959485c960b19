// The results of a model's layers: the shapes of all values, and where the parameters lie. Both go
// through the layers in order and ask each of them (layers/layer_type.hpp).

#include <algorithm>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include <rondo/train/model.hpp>

#include "layers/layer_type.hpp"

namespace rondo::train {
namespace {

[[noreturn]] void refuse_layer(const LayerSpec& layer, const std::string& what) {
  throw std::invalid_argument("layer " + layer.name + ": " + what);
}

void check_inputs(const LayerSpec& layer, const std::vector<tensor::Shape>& known) {
  const std::size_t wanted = layer.kind->inputs();
  const bool several = layer.kind->traits().several_inputs;
  if (several ? layer.inputs.size() < wanted : layer.inputs.size() != wanted) {
    refuse_layer(layer, "has " + std::to_string(layer.inputs.size()) + " inputs and needs " +
                            (several ? "at least " : "") + std::to_string(wanted));
  }
  for (const ValueId input : layer.inputs) {
    // Layers are in the order in which forward runs them, so a value is known before it is read.
    if (input >= known.size()) {
      refuse_layer(layer,
                   "reads value " + std::to_string(input) + ", which no earlier layer writes");
    }
  }
}

tensor::Shape said_output(const LayerSpec& layer, const std::vector<tensor::Shape>& inputs) {
  try {
    return layer.kind->output_of(inputs);
  } catch (const std::invalid_argument& error) {
    refuse_layer(layer, error.what());
  }
}

// Memory is taken for what a layer says that it writes, and a program's own kind may say anything.
tensor::Shape output_of(const LayerSpec& layer, const std::vector<tensor::Shape>& known) {
  std::vector<tensor::Shape> inputs;
  for (const ValueId input : layer.inputs) inputs.push_back(known[input]);
  const tensor::Shape output = said_output(layer, inputs);
  if (output.n != inputs.front().n) {
    refuse_layer(layer, "of " + std::to_string(inputs.front().n) + " images it makes " +
                            std::to_string(output.n) + "; give the output the n of the input");
  }
  std::int64_t most = (std::int64_t{1} << 60) / std::max<std::int64_t>(output.n, 1);
  for (const std::int64_t extent : {output.h, output.w, output.c}) {
    if (extent < 1 || extent > most) {
      refuse_layer(layer, "it cannot write images of " + size_text(output));
    }
    most /= extent;
  }
  return output;
}

// Backward needs a gradient for every value, so each must be read, and only the last may not.
void check_consumers(const Model& model) {
  std::vector<bool> read(model.layers.size() + 1, false);
  for (const LayerSpec& layer : model.layers) {
    for (const ValueId input : layer.inputs) read[input] = true;
  }
  for (std::size_t i = 0; i + 1 < model.layers.size(); ++i) {
    if (!read[i + 1]) refuse_layer(model.layers[i], "no layer reads its output");
  }
}

void check_logits(const Model& model, const tensor::Shape& logits) {
  if (logits.image() != model.classes || logits.c != model.classes) {
    refuse_layer(model.layers.back(), "gives " + size_text(logits) + ", and the model " +
                                          model.name + " needs one logit for each of its " +
                                          std::to_string(model.classes) + " classes");
  }
}

// Files of weights, [grid.layers] and the parts of a grid's ranks find layers and parameters by
// name.
void check_names(const LayerSpec& layer, const LayerParameters& parameters,
                 std::set<std::string>& names) {
  if (!names.insert(layer.name).second) refuse_layer(layer, "there is another layer of this name");
  std::set<std::string> own;
  for (const auto* each : {&parameters.learned, &parameters.statistics}) {
    for (const Parameter& parameter : *each) {
      if (parameter.name.find('.') != std::string::npos) {
        refuse_layer(layer, "its parameter " + parameter.name + " must have a name without dots");
      }
      if (!own.insert(parameter.name).second) {
        refuse_layer(layer, "it has two parameters called " + parameter.name);
      }
    }
  }
}

// Adds the parameters of one layer after another, densely.
void append_layer(const LayerSpec& layer, LayerParameters&& added, ParameterLayout& layout) {
  if (!added.learned.empty()) {
    // A layer's parameters are adjacent, and are reduced and packed together: they are one block.
    layout.blocks.push_back({.name = layer.name, .offset = layout.parameter_count, .size = 0});
  }
  for (Parameter& parameter : added.learned) {
    parameter.name = layer.name + "." + parameter.name;
    parameter.offset = layout.parameter_count;
    layout.parameter_count += parameter.size();
    layout.blocks.back().size += parameter.size();
    layout.parameters.push_back(std::move(parameter));
  }
  // Statistics lie in an array of their own: they are measured, and no optimizer may touch them.
  for (Parameter& statistic : added.statistics) {
    statistic.name = layer.name + "." + statistic.name;
    statistic.offset = layout.statistic_count;
    layout.statistic_count += statistic.size();
    layout.statistics.push_back(std::move(statistic));
  }
}

}  // namespace

std::string description_of(const Model& model) {
  std::string text;
  for (const LayerSpec& layer : model.layers) {
    text += layer.name + " " + layer.kind->text();
    for (const ValueId input : layer.inputs) text += " " + std::to_string(input);
    text += "\n";
  }
  return text;
}

std::vector<tensor::Shape> shapes_of(const Model& model, std::int64_t n) {
  if (model.layers.empty() || model.input.image() < 1) {
    throw std::invalid_argument("model " + model.name + ": needs an input and a layer");
  }
  std::vector<tensor::Shape> shapes{model.input.with_n(n)};
  for (const LayerSpec& layer : model.layers) {
    check_inputs(layer, shapes);
    shapes.push_back(output_of(layer, shapes));
  }
  check_consumers(model);
  check_logits(model, shapes.back());
  return shapes;
}

ParameterLayout layout_of(const Model& model) {
  const std::vector<tensor::Shape> shapes = shapes_of(model, 1);
  ParameterLayout layout;
  std::set<std::string> names;
  for (const LayerSpec& layer : model.layers) {
    LayerParameters parameters = layer.kind->parameters(shapes[layer.inputs[0]]);
    check_names(layer, parameters, names);
    append_layer(layer, std::move(parameters), layout);
  }
  return layout;
}

}  // namespace rondo::train

// Models that the configuration describes layer by layer, with [[model.layers]].
//
// Values have names here: that of the layer that writes them, or "input". A layer reads the value
// before it unless it says `from`; so a chain needs no names at all. Only earlier layers can be
// named, so there are no cycles.

#include "model/described.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "layers/layer_type.hpp"
#include "model/names.hpp"

namespace rondo::train {
namespace {

using Layer = Experiment::Layer;

constexpr const char* input_name = "input";

LayerKind kind_of(const Layer& layer) {
  if (const DescribedKind* kind = find_kind(layer.kind)) return kind->make(layer);
  throw std::invalid_argument("no kind of layer is named \"" + layer.kind + "\"");
}

/// Splits "a, b" into "a" and "b".
std::vector<std::string> names_in(const std::string& list) {
  std::vector<std::string> names;
  for (std::size_t first = list.find_first_not_of(", "); first != std::string::npos;) {
    const std::size_t comma = std::min(list.find(',', first), list.size());
    const std::size_t last = list.find_last_not_of(' ', comma - 1);
    names.push_back(list.substr(first, last + 1 - first));
    first = list.find_first_not_of(", ", comma);
  }
  return names;
}

/// Adds layer after layer, and finds those that later ones name.
class Describer {
 public:
  explicit Describer(const Experiment::Model& description)
      : builder_(description.name,
                 {1, description.input[0], description.input[1], description.input[2]},
                 description.classes) {
    values_[input_name] = ModelBuilder::input;
  }

  void add(const Layer& layer) {
    ++number_;
    const std::string name = layer.name.empty() ? layer.kind + std::to_string(number_) : layer.name;
    try {
      const ValueId x = layer.from.empty() ? last_ : value_of(layer.from);
      if (values_.contains(name)) {
        throw std::invalid_argument("there is another of that name; give each a name of its own");
      }
      std::vector<ValueId> inputs = {x};
      if (!layer.residual.empty()) inputs.push_back(value_of(layer.residual));
      for (const std::string& other : names_in(layer.with)) inputs.push_back(value_of(other));
      last_ = builder_.add(name, kind_of(layer), std::move(inputs));
    } catch (const std::invalid_argument& error) {
      // With the layer's number, from which the reader of the file finds the line.
      throw DescriptionError("model.layers: layer " + name + ": " + error.what(), number_ - 1);
    }
    values_[name] = last_;
    names_.push_back(name);
  }

  Model finish() { return builder_.finish(); }

 private:
  [[nodiscard]] ValueId value_of(const std::string& name) const {
    const auto found = values_.find(name);
    if (found != values_.end()) return found->second;
    std::vector<std::string> names = names_;
    names.emplace_back(input_name);
    throw std::invalid_argument("no layer before it is named \"" + name + "\"; " +
                                suggest(name, names));
  }

  ModelBuilder builder_;
  std::map<std::string, ValueId> values_ = {};
  std::vector<std::string> names_ = {};
  ValueId last_ = ModelBuilder::input;
  std::size_t number_ = 0;
};

/// A problem that shapes_of() finds in a layer begins with the layer's name.
std::optional<std::size_t> layer_of(const Model& model, std::string_view problem) {
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    if (problem.starts_with("layer " + model.layers[i].name + ": ")) return i;
  }
  return {};
}

void check_description(const Experiment::Model& description) {
  if (description.input.size() != 3) {
    throw DescriptionError("model.input: a custom model needs [height, width, channels]");
  }
  if (description.classes < 1) {
    throw DescriptionError("model.classes: a custom model needs the number of its classes");
  }
  if (description.layers.empty()) {
    throw DescriptionError("model.layers: a custom model needs a [[model.layers]] for each layer");
  }
}

}  // namespace

// Shapes are checked here, so that an error can name the table that it is about.
Model make_described_model(const Experiment::Model& description) {
  check_description(description);
  Describer describer(description);
  for (const Layer& layer : description.layers) describer.add(layer);
  Model model = describer.finish();
  try {
    static_cast<void>(shapes_of(model, 1));
  } catch (const std::invalid_argument& error) {
    throw DescriptionError(std::string("model.layers: ") + error.what(),
                           layer_of(model, error.what()));
  }
  return model;
}

Model model_of(const Experiment& experiment, tensor::Shape images, std::int64_t classes) {
  if (experiment.model.name != custom_model) {
    return make_model(experiment.model.name, images, classes);
  }
  Model model = make_described_model(experiment.model);
  // A described model says itself how large its images are; the data have to agree.
  const tensor::Shape wanted = images.with_n(0);
  if (wanted != tensor::Shape{} && wanted != model.input.with_n(0)) {
    throw DescriptionError("model.input: the model is described for images of " +
                           size_text(model.input) + ", and those of the data are " +
                           size_text(images));
  }
  if (classes != 0 && classes != model.classes) {
    throw DescriptionError("model.classes: the model is described for " +
                           std::to_string(model.classes) + " classes, and the data have " +
                           std::to_string(classes));
  }
  return model;
}

}  // namespace rondo::train

#include "trainer/material.hpp"

#include <stdexcept>
#include <string>
#include <utility>

#include "model/described.hpp"

namespace rondo::train {
namespace {

Model usual_model(const Experiment& experiment) {
  try {
    return model_of(experiment);
  } catch (const DescriptionError& error) {
    throw ConfigError(error.what());
  } catch (const std::invalid_argument& error) {
    throw ConfigError(std::string("model.name: ") + error.what());
  }
}

Model model_for(const Dataset& dataset, const Experiment& experiment) {
  try {
    return model_of(experiment, dataset.training.shape, dataset.classes);
  } catch (const DescriptionError& error) {
    throw ConfigError(error.what());
  } catch (const std::invalid_argument& error) {
    throw ConfigError("model.name: " + experiment.model.name + " does not fit the pictures of " +
                      experiment.data.name + ": " + error.what());
  }
}

}  // namespace

// A synthetic data set takes its shape from the model, where the experiment gives none; then the
// model takes its own from the data set, whichever that is.
Material make_material(const Experiment& experiment) {
  const Model usual = usual_model(experiment);
  Dataset dataset = load_dataset(experiment.data, usual.input, usual.classes);
  Model model = model_for(dataset, experiment);
  return {std::move(dataset), std::move(model)};
}

}  // namespace rondo::train

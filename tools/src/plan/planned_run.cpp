#include "plan/planned_run.hpp"

#include <stdexcept>

#include <rondo/train/dataset.hpp>

#include "exit_status.hpp"

namespace rondo::tools {
train::Model planned_model(const train::Experiment& experiment) {
  const train::DatasetShape images = train::dataset_shape(experiment.data);
  try {
    return train::model_of(experiment, images.image, images.classes);
  } catch (const std::invalid_argument& error) {
    throw UsageError("model.name: " + experiment.model.name + " does not fit the images of " +
                     experiment.data.name + ": " + error.what());
  }
}

}  // namespace rondo::tools

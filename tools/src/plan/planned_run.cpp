#include "plan/planned_run.hpp"

#include <stdexcept>

#include "exit_status.hpp"

namespace rondo::tools {
namespace {

struct Pictures {
  tensor::Shape shape = {};  // {}: the model's usual one
  std::int64_t classes = 0;  // 0: likewise
};

Pictures pictures_of(const train::Experiment::Data& data) {
  if (data.name == "fashion-mnist") return {{1, 28, 28, 1}, 10};
  if (data.name == "cifar10") return {{1, 32, 32, 3}, 10};
  if (data.shape.size() != 3) return {{}, data.classes};
  return {{1, data.shape[0], data.shape[1], data.shape[2]}, data.classes};
}

}  // namespace

train::Model planned_model(const train::Experiment& experiment) {
  const Pictures pictures = pictures_of(experiment.data);
  try {
    return train::model_of(experiment, pictures.shape, pictures.classes);
  } catch (const std::invalid_argument& error) {
    throw UsageError("model.name: " + experiment.model.name + " does not fit the pictures of " +
                     experiment.data.name + ": " + error.what());
  }
}

}  // namespace rondo::tools

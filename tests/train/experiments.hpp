#pragma once

#include <cstdint>
#include <string>

#include <rondo/train/experiment.hpp>

namespace rondo::train::test {

/// A run of seconds that needs no file.
[[nodiscard]] inline Experiment small_experiment(const std::string& model = "lenet5",
                                                 std::int64_t global_batch = 24) {
  Experiment experiment;
  experiment.data.name = "synthetic";
  experiment.data.training = 200;
  experiment.data.test = 50;
  experiment.model.name = model;
  experiment.train.global_batch = global_batch;
  experiment.train.max_steps = 5;
  experiment.optimizer.learning_rate = 0.05;
  return experiment;
}

}  // namespace rondo::train::test

#include "trainer/update.hpp"

#include <cmath>
#include <string>
#include <utility>

#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/synchronous.hpp>

namespace rondo::train {
namespace {

std::unique_ptr<sync::Optimizer> make_optimizer(const Experiment& experiment, std::size_t size,
                                                transport::Team* team) {
  if (experiment.optimizer.name != "sgd") {
    throw ConfigError("optimizer.name: \"" + experiment.optimizer.name +
                      "\" is not known; there is: sgd");
  }
  return sync::make_sgd(size,
                        {.momentum = static_cast<float>(experiment.optimizer.momentum),
                         .weight_decay = static_cast<float>(experiment.optimizer.weight_decay)},
                        team);
}

sync::Decay decay_of(const Experiment& experiment) {
  if (experiment.optimizer.schedule == "constant") return sync::Decay::constant;
  if (experiment.optimizer.schedule == "cosine") return sync::Decay::cosine;
  throw ConfigError("optimizer.schedule: \"" + experiment.optimizer.schedule +
                    "\" is not known; there are: constant, cosine");
}

}  // namespace

sync::LearningRate learning_rate_of(const Experiment& experiment, std::int64_t steps_per_epoch,
                                    std::int64_t total_steps) {
  const double warmup = experiment.optimizer.warmup_epochs * static_cast<double>(steps_per_epoch);
  return {.base = experiment.optimizer.learning_rate,
          .final_rate = experiment.optimizer.final_learning_rate,
          .decay = decay_of(experiment),
          .warmup_steps = static_cast<std::int64_t>(std::llround(warmup)),
          .total_steps = total_steps};
}

std::unique_ptr<sync::UpdateScheme> make_scheme(const Experiment& experiment, sync::Replica replica,
                                                transport::Team* team) {
  if (experiment.update.scheme != "synchronous") {
    throw ConfigError("update.scheme: \"" + experiment.update.scheme +
                      "\" is not known; there is: synchronous");
  }
  const std::size_t size = replica.parameters.size();
  const auto bucket_bytes = static_cast<std::size_t>(experiment.update.bucket_bytes);
  return sync::make_synchronous(
      std::move(replica), make_optimizer(experiment, size, team),
      {.bucket_bytes = bucket_bytes, .last_bucket_bytes = bucket_bytes / 4});
}

}  // namespace rondo::train

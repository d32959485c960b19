#pragma once

#include <cstdint>
#include <memory>

#include <rondo/sync/learning_rate.hpp>
#include <rondo/sync/replica.hpp>
#include <rondo/sync/update_scheme.hpp>
#include <rondo/train/experiment.hpp>

namespace rondo::transport {
class Team;
}

namespace rondo::train {

/// The learning rate that [optimizer] describes, for a run of so many steps.
[[nodiscard]] sync::LearningRate learning_rate_of(const Experiment& experiment,
                                                  std::int64_t steps_per_epoch,
                                                  std::int64_t total_steps);

/// The scheme that [update] names, with the optimizer that [optimizer] names. Throws ConfigError
/// when there is none.
[[nodiscard]] std::unique_ptr<sync::UpdateScheme> make_scheme(const Experiment& experiment,
                                                              sync::Replica replica,
                                                              transport::Team* team);

}  // namespace rondo::train

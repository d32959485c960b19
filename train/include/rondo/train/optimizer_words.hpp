#pragma once

#include <rondo/train/experiment.hpp>
#include <rondo/train/export.hpp>

namespace rondo::train {

/// Words that the optimizer which [optimizer] names keeps for each parameter: 1 of "sgd", whose
/// momenta are kept without momentum, too, and 2 of "adam" and "adamw".
[[nodiscard]] RONDO_TRAIN_API int optimizer_words(const Experiment::Optimizer& optimizer);

}  // namespace rondo::train

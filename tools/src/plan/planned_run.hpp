#pragma once

#include <rondo/train/experiment.hpp>
#include <rondo/train/model.hpp>

namespace rondo::tools {

/// The model that the experiment trains, for its pictures, without reading any: those of
/// fashion-mnist and cifar10 have known shapes.
[[nodiscard]] train::Model planned_model(const train::Experiment& experiment);

}  // namespace rondo::tools

#pragma once

#include <rondo/train/experiment.hpp>
#include <rondo/train/model.hpp>

namespace rondo::tools {

/// The model that the experiment trains, for its images, without reading any.
[[nodiscard]] train::Model planned_model(const train::Experiment& experiment);

}  // namespace rondo::tools

#pragma once

#include <rondo/train/dataset.hpp>
#include <rondo/train/experiment.hpp>
#include <rondo/train/model.hpp>

namespace rondo::train {

/// What an experiment trains, and on which pictures; they fit each other.
struct Material {
  Dataset dataset = {};
  Model model = {};
};

/// Reads the data and makes the model for its pictures. Throws DataError, or ConfigError when the
/// model cannot take such pictures.
[[nodiscard]] Material make_material(const Experiment& experiment);

}  // namespace rondo::train

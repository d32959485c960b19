#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <rondo/train/model.hpp>

#include "config/grid_choice.hpp"

namespace rondo::train {

/// What a user is told of a grid before the run, line by line: groups and ranks; then, for every
/// layer with weights, its split and what all ranks send for it in a step of `global_batch`
/// samples. Empty where every rank is a replica of its own.
[[nodiscard]] std::vector<std::string> grid_report(const Model& model, const GridChoice& choice,
                                                   std::int64_t global_batch);

}  // namespace rondo::train

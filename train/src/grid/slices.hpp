#pragma once

#include <rondo/train/model.hpp>
#include <rondo/train/parameters.hpp>

#include "grid/lowering.hpp"

namespace rondo::train {

/// The parameters and statistics of `model` that rank `rank` of a group holds, as layout_of() but
/// for what is cut: of a convolution by channel its filters and channels, of a fully connected
/// layer by channel its outputs, of batch norm its channels.
[[nodiscard]] ParameterLayout layout_of(const Model& model, const Lowering& lowering, int rank);

}  // namespace rondo::train

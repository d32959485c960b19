#pragma once

#include <string>
#include <vector>

#include <rondo/train/scaling.hpp>

namespace rondo::tools {

/// An object per number of ranks; names as in the CSV's first line, which are stable: ranks,
/// global_batch, step_seconds, compute_seconds, exposed_seconds, images_per_second, speedup,
/// efficiency.
[[nodiscard]] std::string scaling_as_json(const std::vector<train::ScalingPoint>& points);
[[nodiscard]] std::string scaling_as_csv(const std::vector<train::ScalingPoint>& points);
[[nodiscard]] std::string scaling_as_table(const std::vector<train::ScalingPoint>& points);

}  // namespace rondo::tools

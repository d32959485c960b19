#pragma once

#include <rondo/train/plan.hpp>

namespace rondo::train {

// Throws std::invalid_argument where an option is impossible.
void check(const PlanOptions& options);

}  // namespace rondo::train

#pragma once

#include <cstdint>

#include <rondo/train/plan.hpp>

namespace rondo::train {

// Bytes of a rank by the formula of plan.hpp.
[[nodiscard]] std::uint64_t bytes_per_rank(const Model& model, Strategy strategy, int pr, int pc,
                                           const PlanOptions& options);

}  // namespace rondo::train

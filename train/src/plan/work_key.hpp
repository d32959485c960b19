#pragma once

#include <string>

#include <rondo/train/compute_costs.hpp>

namespace rondo::train {

// The layer's numbers, but not its name: what its time depends on.
[[nodiscard]] std::string key_of(const LocalWork& work);

// oneDNN's version, the processor and the threads.
[[nodiscard]] std::string machine_key(int threads);

}  // namespace rondo::train

#pragma once

#include <cstddef>

#include "optimizer/sgd_kernel.hpp"

// The loop that each sgd_<instruction set>.cpp compiles with its own flags. Internal linkage, and
// nothing else from headers: a function shared with other translation units could be taken by the
// linker from the one with the widest instructions.
namespace {

inline void sgd_loop(float* __restrict parameters, float* __restrict velocity,
                     const float* __restrict gradients, std::size_t size,
                     const rondo::sync::SgdFactors& factors) {
  const auto [scale, momentum, decay, rate] = factors;
  for (std::size_t i = 0; i < size; ++i) {
    const float gradient = scale * gradients[i] + decay * parameters[i];
    velocity[i] = momentum * velocity[i] + gradient;
    parameters[i] = parameters[i] - rate * velocity[i];
  }
}

}  // namespace

#pragma once

#include <cstddef>

#include "optimizer/adam_kernel.hpp"

// The loop that each adam_<instruction set>.cpp compiles with its own flags; see sgd_loop.hpp for
// why nothing else comes from headers, std::sqrt included. Divisions and square roots are rounded
// correctly by every instruction set, so all agree.
namespace {

inline void adam_loop(const rondo::sync::AdamArrays& arrays, std::size_t size,
                      const rondo::sync::AdamFactors& factors) {
  float* __restrict parameters = arrays.parameters;
  float* __restrict m = arrays.m;
  float* __restrict v = arrays.v;
  const float* __restrict gradients = arrays.gradients;
  const auto [scale, decay, shrink, beta1, rest1, beta2, rest2, correction, epsilon, rate] =
      factors;
  for (std::size_t i = 0; i < size; ++i) {
    const float gradient = scale * gradients[i] + decay * parameters[i];
    m[i] = beta1 * m[i] + rest1 * gradient;
    v[i] = beta2 * v[i] + rest2 * (gradient * gradient);
    const float length = __builtin_sqrtf(v[i]) * correction + epsilon;
    parameters[i] = shrink * parameters[i] - rate * (m[i] / length);
  }
}

}  // namespace

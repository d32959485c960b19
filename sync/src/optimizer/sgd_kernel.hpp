#pragma once

#include <cstddef>
#include <span>

#include "optimizer/variants.hpp"

namespace rondo::sync {

/// The factors of one SGD update.
struct SgdFactors {
  float scale;     ///< of the gradients
  float momentum;  ///< mu
  float decay;     ///< lambda
  float rate;      ///< eta
};

/// v = mu*v + (scale*g + lambda*w); w = w - eta*v, for `size` elements that do not overlap.
using SgdKernel = void (*)(float* parameters, float* velocity, const float* gradients,
                           std::size_t size, const SgdFactors& factors);

void update_sgd_baseline(float* parameters, float* velocity, const float* gradients,
                         std::size_t size, const SgdFactors& factors);
void update_sgd_avx2(float* parameters, float* velocity, const float* gradients, std::size_t size,
                     const SgdFactors& factors);
void update_sgd_avx512(float* parameters, float* velocity, const float* gradients, std::size_t size,
                       const SgdFactors& factors);

using SgdVariant = Variant<SgdKernel>;

/// The variants that this machine can run, the fastest last. They agree bit for bit.
[[nodiscard]] std::span<const SgdVariant> sgd_variants();

}  // namespace rondo::sync

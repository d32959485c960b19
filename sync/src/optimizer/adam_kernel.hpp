#pragma once

#include <cstddef>
#include <span>

#include "optimizer/variants.hpp"

namespace rondo::sync {

/// The factors of one update by Adam or AdamW; see AdamOptions.
struct AdamFactors {
  float scale;       ///< of the gradients
  float decay;       ///< of weights, into the gradient (Adam)
  float shrink;      ///< of weights, apart from it (AdamW): 1 - eta * weight_decay
  float beta1;       ///< of m
  float rest1;       ///< 1 - beta1
  float beta2;       ///< of v
  float rest2;       ///< 1 - beta2
  float correction;  ///< of sqrt(v): 1 / sqrt(1 - beta2^t)
  float epsilon;
  float rate;  ///< eta / (1 - beta1^t)
};

/// The arrays of an update; they do not overlap.
struct AdamArrays {
  float* parameters;
  float* m;
  float* v;
  const float* gradients;
};

/// Updates `size` elements.
using AdamKernel = void (*)(const AdamArrays& arrays, std::size_t size, const AdamFactors& factors);

void update_adam_baseline(const AdamArrays& arrays, std::size_t size, const AdamFactors& factors);
void update_adam_avx2(const AdamArrays& arrays, std::size_t size, const AdamFactors& factors);
void update_adam_avx512(const AdamArrays& arrays, std::size_t size, const AdamFactors& factors);

using AdamVariant = Variant<AdamKernel>;

/// The variants that this machine can run, the fastest last. They agree bit for bit.
[[nodiscard]] std::span<const AdamVariant> adam_variants();

}  // namespace rondo::sync

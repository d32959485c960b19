#pragma once

#include <cstddef>
#include <span>

namespace rondo::sync {

/// The factors of one SGD update.
struct SgdFactors {
  float scale;     ///< of the gradients
  float momentum;  ///< mu
  float decay;     ///< lambda
  float rate;      ///< eta
};

/// The arrays of an SGD update; they do not overlap.
struct SgdArrays {
  float* parameters;
  float* velocity;
  const float* gradients;
};

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

/// The arrays of an Adam update; they do not overlap.
struct AdamArrays {
  float* parameters;
  float* m;
  float* v;
  const float* gradients;
};

/// The update kernels, compiled for one instruction set. Each updates `size` elements.
struct UpdateKernels {
  const char* instruction_set;
  void (*sgd)(const SgdArrays& arrays, std::size_t size, const SgdFactors& factors);
  void (*nesterov)(const SgdArrays& arrays, std::size_t size, const SgdFactors& factors);
  void (*adam)(const AdamArrays& arrays, std::size_t size, const AdamFactors& factors);
};

// kernels.cpp, compiled for each.
namespace baseline {
extern const UpdateKernels update_kernels;
}
namespace avx2 {
extern const UpdateKernels update_kernels;
}
namespace avx512 {
extern const UpdateKernels update_kernels;
}

/// The kernels that this machine can run, the fastest last. They agree bit for bit.
[[nodiscard]] std::span<const UpdateKernels* const> runnable_kernels();

}  // namespace rondo::sync

#pragma once

#include <cstddef>

namespace rondo::tensor {

/// The instruction sets that our own loops are compiled for, each in a translation unit of its
/// own. All variants do the same operations in the same order and agree bit for bit.
enum class InstructionSet { baseline, avx2, avx512 };

// Batch norm's loops run over rows of `width` floats, a multiple of 16 and of the channels: the
// channel of an element is its lane modulo the channels. Constants are arrays of `width` floats,
// sums arrays of `width` doubles. `count` is a multiple of the channels and need not be one of
// `width`: the last row may be short.

/// y = (x - mean) * factor + shift, + residual if there is one, and ReLU if `rectified`.
struct Normalise {
  const float* x;
  const float* residual;  ///< or nullptr
  float* y;
  std::size_t count;
  const float* mean;
  const float* factor;
  const float* shift;
  std::size_t width;
  bool rectified;
};

/// sums += x - origin; squares += (x - origin)^2
struct SumMoments {
  const float* x;
  std::size_t count;
  const float* origin;
  std::size_t width;
  double* sums;
  double* squares;
};

/// Where backward learns whether a ReLU passed: there is none, it computes the ReLU's input again
/// from x, or it looks at the ReLU's output y (whose residual it does not have).
enum class Gate { open, recomputed, output };

/// g = dy (+ also) where the gate is open, else 0; sums += g; products += g * (x - mean). g also
/// replaces dy, unless it can be had again from dy and x: with Gate::output or `also`.
struct SumGradients {
  const float* x;
  const float* y;
  float* dy;
  const float* also;  ///< a second gradient of the same values, or nullptr
  std::size_t count;
  const float* mean;
  const float* factor;
  const float* shift;
  std::size_t width;
  Gate gate;
  double* sums;
  double* products;
};

/// dx = factor * (g - offset - (x - mean) * slope)
struct InputGradients {
  const float* x;
  const float* dy;
  float* dx;
  std::size_t count;
  const float* mean;
  const float* factor;
  const float* shift;
  const float* offset;
  const float* slope;
  std::size_t width;
  Gate gate;  ///< open or recomputed
};

/// One variant of our own loops, over dense memory, on the calling thread.
struct Kernels {
  /// dy *= (y > 0)
  void (*backward_relu)(const float* y, float* dy, std::size_t count);
  /// into += from
  void (*add)(const float* from, float* into, std::size_t count);

  void (*sum_moments)(const SumMoments& task);
  void (*normalise)(const Normalise& task);
  void (*sum_gradients)(const SumGradients& task);
  void (*input_gradients)(const InputGradients& task);
};

// kernels.cpp, compiled for each.
namespace baseline {
extern const Kernels loops;
}
namespace avx2 {
extern const Kernels loops;
}
namespace avx512 {
extern const Kernels loops;
}

/// Can this CPU run that variant?
[[nodiscard]] bool is_supported(InstructionSet set) noexcept;

/// The widest variant that this CPU can run.
[[nodiscard]] InstructionSet best_instruction_set() noexcept;

[[nodiscard]] const char* name_of(InstructionSet set) noexcept;
[[nodiscard]] const Kernels& kernels_of(InstructionSet set) noexcept;

/// The variant that the library runs.
[[nodiscard]] const Kernels& kernels() noexcept;

}  // namespace rondo::tensor

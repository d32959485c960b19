#pragma once

#include <cstddef>

#include <rondo/tensor/data_type.hpp>

namespace rondo::tensor {

/// The instruction sets that our own loops are compiled for, each in a translation unit of its
/// own. All variants do the same operations in the same order and agree bit for bit.
enum class InstructionSet { baseline, avx2, avx512, avx512_bf16 };

// Batch norm's loops run over rows of `width` floats, a multiple of 16 and of the channels: the
// channel of an element is its lane modulo the channels. Constants are arrays of `width` floats,
// sums arrays of `width` doubles. `count` is a multiple of the channels and need not be one of
// `width`: the last row may be short. T, float or Bfloat16, is what lies in memory: all variants
// compute in float.

/// y = (x - mean) * factor + shift, + residual if there is one, and ReLU if `rectified`.
template <typename T>
struct Normalise {
  const T* x;
  const T* residual;  ///< or nullptr
  T* y;
  std::size_t count;
  const float* mean;
  const float* factor;
  const float* shift;
  std::size_t width;
  bool rectified;
};

/// sums += x - origin; squares += (x - origin)^2
template <typename T>
struct SumMoments {
  const T* x;
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
template <typename T>
struct SumGradients {
  const T* x;
  const T* y;
  T* dy;
  const T* also;  ///< a second gradient of the same values, or nullptr
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
template <typename T>
struct InputGradients {
  const T* x;
  const T* dy;
  T* dx;
  std::size_t count;
  const float* mean;
  const float* factor;
  const float* shift;
  const float* offset;
  const float* slope;
  std::size_t width;
  Gate gate;  ///< open or recomputed
};

/// Our own loops over dense memory of one type, on the calling thread.
template <typename T>
struct Loops {
  /// y = min(max(x, 0), most)
  void (*relu)(const T* x, T* y, std::size_t count, float most);
  /// dy *= (0 < y < most)
  void (*backward_relu)(const T* y, T* dy, std::size_t count, float most);
  /// into += from
  void (*add)(const T* from, T* into, std::size_t count);

  void (*sum_moments)(const SumMoments<T>& task);
  void (*normalise)(const Normalise<T>& task);
  void (*sum_gradients)(const SumGradients<T>& task);
  void (*input_gradients)(const InputGradients<T>& task);
};

/// One variant of them, for each type.
struct Kernels {
  Loops<float> f32;
  Loops<Bfloat16> bf16;
  /// into = from
  void (*narrow)(const float* from, Bfloat16* into, std::size_t count);
  void (*widen)(const Bfloat16* from, float* into, std::size_t count);

  template <typename T>
  [[nodiscard]] const Loops<T>& of() const noexcept {
    if constexpr (data_type_of<T> == DataType::bf16) {
      return bf16;
    } else {
      return f32;
    }
  }
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
namespace avx512_bf16 {
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

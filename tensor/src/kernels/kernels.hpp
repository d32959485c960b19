#pragma once

#include <cstddef>

namespace rondo::tensor {

/// The instruction sets that our own loops are compiled for, each in a translation unit of its
/// own. All variants do the same operations in the same order and agree bit for bit.
enum class InstructionSet { baseline, avx2, avx512 };

/// One variant of our own loops, over dense memory, on the calling thread.
struct Kernels {
  /// dy *= (y > 0)
  void (*backward_relu)(const float* y, float* dy, std::size_t count);
  /// into += from
  void (*add)(const float* from, float* into, std::size_t count);
};

/// Can this CPU run that variant?
[[nodiscard]] bool is_supported(InstructionSet set) noexcept;

/// The widest variant that this CPU can run.
[[nodiscard]] InstructionSet best_instruction_set() noexcept;

[[nodiscard]] const char* name_of(InstructionSet set) noexcept;
[[nodiscard]] const Kernels& kernels_of(InstructionSet set) noexcept;

/// The variant that the library runs.
[[nodiscard]] const Kernels& kernels() noexcept;

}  // namespace rondo::tensor

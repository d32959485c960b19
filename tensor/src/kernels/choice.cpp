// Which variant of the loops this CPU runs. Asked once, by __builtin_cpu_supports and a static: an
// ifunc would be resolved before the thread sanitizer is ready. Every variant gives the same bits,
// so the choice changes the speed and nothing else.

#include "convolution_tiles.hpp"
#include "kernels.hpp"

namespace rondo::tensor {

bool is_supported(InstructionSet set) noexcept {
  switch (set) {
    case InstructionSet::avx512_bf16:
      return __builtin_cpu_supports("avx512bf16") != 0;
    case InstructionSet::avx512:
      return __builtin_cpu_supports("avx512f") != 0;
    case InstructionSet::avx2:
      return __builtin_cpu_supports("avx2") != 0;
    case InstructionSet::baseline:
      break;
  }
  return true;
}

InstructionSet best_instruction_set() noexcept {
  // Widest first: the order of the enumeration is that of the instruction sets, each of which
  // contains the one before it.
  if (is_supported(InstructionSet::avx512_bf16)) return InstructionSet::avx512_bf16;
  if (is_supported(InstructionSet::avx512)) return InstructionSet::avx512;
  if (is_supported(InstructionSet::avx2)) return InstructionSet::avx2;
  return InstructionSet::baseline;
}

const char* name_of(InstructionSet set) noexcept {
  switch (set) {
    case InstructionSet::avx512_bf16:
      return "avx512_bf16";
    case InstructionSet::avx512:
      return "avx512";
    case InstructionSet::avx2:
      return "avx2";
    case InstructionSet::baseline:
      break;
  }
  return "baseline";
}

const Kernels& kernels_of(InstructionSet set) noexcept {
  switch (set) {
    case InstructionSet::avx512_bf16:
      return avx512_bf16::loops;
    case InstructionSet::avx512:
      return avx512::loops;
    case InstructionSet::avx2:
      return avx2::loops;
    case InstructionSet::baseline:
      break;
  }
  return baseline::loops;
}

const Kernels& kernels() noexcept {
  // All threads may ask at once: a static is initialised once.
  static const Kernels& chosen = kernels_of(best_instruction_set());
  return chosen;
}

const ConvolutionTiles* convolution_tiles(DataType type) noexcept {
  static const bool with_f32 = is_supported(InstructionSet::avx512);
  static const bool with_bf16 = is_supported(InstructionSet::avx512_bf16);
  if (type == DataType::bf16) return with_bf16 ? &avx512_bf16::bf16_tiles : nullptr;
  return with_f32 ? &avx512::f32_tiles : nullptr;
}

}  // namespace rondo::tensor

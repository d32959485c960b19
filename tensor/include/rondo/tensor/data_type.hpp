#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>

#include <rondo/tensor/export.hpp>

namespace rondo::tensor {

/// The type of an activation's elements. Parameters, their gradients and statistics are always f32.
enum class DataType : std::uint8_t { f32, bf16 };

/// The upper half of a float: its sign, its exponent, and 7 bits of its fraction. A number only in
/// memory: kernels compute in float.
struct Bfloat16 {
  std::uint16_t bits;

  [[nodiscard]] bool operator==(const Bfloat16&) const noexcept = default;
};

[[nodiscard]] constexpr float to_float(float value) noexcept { return value; }
[[nodiscard]] constexpr float to_float(Bfloat16 value) noexcept {
  return std::bit_cast<float>(std::uint32_t{value.bits} << 16U);
}

/// The nearest one, of two equally near ones the even one; denormals become zero, NaN stays NaN: as
/// the CPU's instruction gives it.
[[nodiscard]] constexpr Bfloat16 to_bfloat16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const bool is_denormal = (bits & 0x7f800000U) == 0U;
  const std::uint32_t rounded = value != value ? bits | 0x400000U
                                : is_denormal  ? bits & 0x80000000U
                                               : bits + 0x7fffU + ((bits >> 16U) & 1U);
  return {static_cast<std::uint16_t>(rounded >> 16U)};
}

/// As a T, float or Bfloat16; the other way is to_float().
template <typename T>
[[nodiscard]] constexpr T from_float(float value) noexcept {
  if constexpr (sizeof(T) == sizeof(Bfloat16)) {
    return to_bfloat16(value);
  } else {
    return value;
  }
}

/// The types of elements that kernels know.
template <typename T>
concept TensorElement = std::same_as<T, float> || std::same_as<T, Bfloat16>;

template <TensorElement T>
inline constexpr DataType data_type_of = DataType::f32;
template <>
inline constexpr DataType data_type_of<Bfloat16> = DataType::bf16;

[[nodiscard]] constexpr std::size_t size_of(DataType type) noexcept {
  return type == DataType::bf16 ? sizeof(Bfloat16) : sizeof(float);
}

/// use(T()) for the type of elements that `type` means.
template <typename Use>
void with_type(DataType type, const Use& use) {
  if (type == DataType::bf16) {
    use(Bfloat16());
  } else {
    use(float());
  }
}

/// "f32", "bf16".
[[nodiscard]] constexpr const char* name_of(DataType type) noexcept {
  return type == DataType::bf16 ? "bf16" : "f32";
}

/// Does this CPU multiply bf16 numbers by itself (AVX512_BF16 or AMX)? Elsewhere oneDNN has no bf16
/// kernels, or slower ones than those for f32. ONEDNN_MAX_CPU_ISA counts.
[[nodiscard]] RONDO_TENSOR_API bool computes_bf16() noexcept;

/// Throws std::runtime_error, which says what to do, where oneDNN's kernels of that type would not
/// run at full speed here. Layers on oneDNN call it; batch norm and loops of our own run anywhere.
RONDO_TENSOR_API void require_computable(DataType type);

}  // namespace rondo::tensor

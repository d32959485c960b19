#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace rondo::transport {

/// A bfloat16 as it lies in memory: the upper half of an IEEE float.
///
/// Storage only. Reductions over it accumulate in fp32 and round to nearest even.
struct Bfloat16 {
  std::uint16_t bits = 0;
};

/// What one element of a buffer is.
enum class ElementType : std::uint8_t { f32, f64, bf16, i32, i64, u8 };

/// Bytes of one element.
[[nodiscard]] constexpr std::size_t size_of(ElementType type) noexcept {
  switch (type) {
    case ElementType::f64:
    case ElementType::i64:
      return 8;
    case ElementType::f32:
    case ElementType::i32:
      return 4;
    case ElementType::bf16:
      return 2;
    case ElementType::u8:
      return 1;
  }
  return 0;
}

/// The C++ types that collectives take.
template <typename T>
concept Element =
    std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, Bfloat16> ||
    std::same_as<T, std::int32_t> || std::same_as<T, std::int64_t> || std::same_as<T, std::uint8_t>;

/// The ElementType of a C++ type.
template <Element T>
[[nodiscard]] constexpr ElementType type_of() noexcept {
  if constexpr (std::same_as<T, float>) return ElementType::f32;
  if constexpr (std::same_as<T, double>) return ElementType::f64;
  if constexpr (std::same_as<T, Bfloat16>) return ElementType::bf16;
  if constexpr (std::same_as<T, std::int32_t>) return ElementType::i32;
  if constexpr (std::same_as<T, std::int64_t>) return ElementType::i64;
  return ElementType::u8;
}

/// How a reduction joins two elements.
///
/// Ranks are joined in rank order, so the result does not depend on timing. Integers wrap
/// around; with `min` and `max` a NaN on any rank makes the result NaN.
enum class ReduceOp : std::uint8_t { sum, min, max };

}  // namespace rondo::transport

#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace rondo::transport {

/// A bfloat16 as it lies in memory: the upper half of an IEEE float.
///
/// Storage only. Reductions over it accumulate in fp32 and round to nearest even; between nodes
/// each step of a ring or tree rounds.
struct Bfloat16 {
  std::uint16_t bits = 0;
};

/// An IEEE half-precision number as it lies in memory. Storage only, as Bfloat16.
struct Float16 {
  std::uint16_t bits = 0;
};

/// The type of one element of a buffer.
enum class ElementType : std::uint8_t { f32, f64, bf16, i32, i64, u8, f16, i8, i16, u16, u32, u64 };

/// Bytes of one element.
[[nodiscard]] constexpr std::size_t size_of(ElementType type) noexcept {
  switch (type) {
    case ElementType::f64:
    case ElementType::i64:
    case ElementType::u64:
      return 8;
    case ElementType::f32:
    case ElementType::i32:
    case ElementType::u32:
      return 4;
    case ElementType::bf16:
    case ElementType::f16:
    case ElementType::i16:
    case ElementType::u16:
      return 2;
    case ElementType::u8:
    case ElementType::i8:
      return 1;
  }
  return 0;
}

/// Is it none of f32, f64, bf16 and f16?
[[nodiscard]] constexpr bool is_integer(ElementType type) noexcept {
  return type != ElementType::f32 && type != ElementType::f64 && type != ElementType::bf16 &&
         type != ElementType::f16;
}

/// The C++ types that collectives take.
template <typename T>
concept Element =
    std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, Bfloat16> ||
    std::same_as<T, Float16> || std::same_as<T, std::int8_t> || std::same_as<T, std::int16_t> ||
    std::same_as<T, std::int32_t> || std::same_as<T, std::int64_t> ||
    std::same_as<T, std::uint8_t> || std::same_as<T, std::uint16_t> ||
    std::same_as<T, std::uint32_t> || std::same_as<T, std::uint64_t>;

/// The ElementType of a C++ type.
template <Element T>
[[nodiscard]] constexpr ElementType type_of() noexcept {
  if constexpr (std::same_as<T, float>) return ElementType::f32;
  if constexpr (std::same_as<T, double>) return ElementType::f64;
  if constexpr (std::same_as<T, Bfloat16>) return ElementType::bf16;
  if constexpr (std::same_as<T, Float16>) return ElementType::f16;
  if constexpr (std::same_as<T, std::int8_t>) return ElementType::i8;
  if constexpr (std::same_as<T, std::int16_t>) return ElementType::i16;
  if constexpr (std::same_as<T, std::int32_t>) return ElementType::i32;
  if constexpr (std::same_as<T, std::int64_t>) return ElementType::i64;
  if constexpr (std::same_as<T, std::uint16_t>) return ElementType::u16;
  if constexpr (std::same_as<T, std::uint32_t>) return ElementType::u32;
  if constexpr (std::same_as<T, std::uint64_t>) return ElementType::u64;
  return ElementType::u8;
}

/// How a reduction joins two elements.
///
/// The order in which ranks are joined follows from their number, their nodes and the size, so the
/// result does not depend on timing; inside a node it is the order of ranks. bf16 and f16 are
/// joined in fp32; between nodes every partial sum is rounded to the type, so a sum of f16 that is
/// above 65504 on the way becomes infinite, that of an `avg`, too. Integers wrap around; with `min`
/// and `max` a NaN on any rank makes the result NaN. `avg` is the sum divided by the number of
/// ranks, for integers rounded towards zero. The bit operations are for integers.
enum class ReduceOp : std::uint8_t { sum, min, max, prod, avg, bit_and, bit_or, bit_xor };

}  // namespace rondo::transport

// The reduction loops. Included by one translation unit per instruction set, which says how to
// compile them and names the namespace in RONDO_REDUCTION_SET; everything else is internal. No
// inline function of the standard library is called: the linker could take this copy of it for
// the whole program, on a CPU without these instructions.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "reduce/reduce.hpp"

namespace rondo::transport::RONDO_REDUCTION_SET {
namespace {

// Elements that are held in registers between loading the first source and storing the result.
constexpr std::size_t lane_bytes = 256;

template <typename T>
struct Storage {
  using Sum = T;
  static Sum load(T value) { return value; }
  static T store(Sum value) { return value; }
};

template <>
struct Storage<Bfloat16> {
  using Sum = float;
  static float load(Bfloat16 value) {
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(value.bits) << 16U);
  }
  // Round to nearest even; a NaN stays one.
  static Bfloat16 store(float value) {
    const auto bits = __builtin_bit_cast(std::uint32_t, value);
    const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U;
    const std::uint32_t quiet = (bits >> 16U) | 0x40U;
    return {static_cast<std::uint16_t>(value != value ? quiet : rounded)};
  }
};

struct Sum {
  template <typename T>
  static T join(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    } else {
      return a + b;
    }
  }
};

// `b != b` lets a NaN through whichever side it comes from.
struct Min {
  template <typename T>
  static T join(T a, T b) {
    return (b < a || b != b) ? b : a;
  }
};

struct Max {
  template <typename T>
  static T join(T a, T b) {
    return (b > a || b != b) ? b : a;
  }
};

// `Count` elements at once; all sources are read before anything is stored, so a destination may
// be a source.
template <typename T, typename Op, std::size_t Count>
void reduce_lanes(const std::byte* const* sources, std::size_t source_count,
                  std::byte* const* destinations, std::size_t destination_count,
                  std::size_t offset) {
  using S = Storage<T>;
  T values[Count];
  typename S::Sum sums[Count];
  std::memcpy(values, sources[0] + offset, sizeof values);
  for (std::size_t i = 0; i < Count; ++i) sums[i] = S::load(values[i]);
  for (std::size_t s = 1; s < source_count; ++s) {
    std::memcpy(values, sources[s] + offset, sizeof values);
    for (std::size_t i = 0; i < Count; ++i) sums[i] = Op::join(sums[i], S::load(values[i]));
  }
  for (std::size_t i = 0; i < Count; ++i) values[i] = S::store(sums[i]);
  for (std::size_t d = 0; d < destination_count; ++d) {
    std::memcpy(destinations[d] + offset, values, sizeof values);
  }
}

template <typename T, typename Op>
void reduce(const std::byte* const* sources, std::size_t source_count,
            std::byte* const* destinations, std::size_t destination_count, std::size_t begin,
            std::size_t end) {
  constexpr std::size_t lanes = lane_bytes / sizeof(T);
  std::size_t i = begin;
  for (; i + lanes <= end; i += lanes) {
    reduce_lanes<T, Op, lanes>(sources, source_count, destinations, destination_count,
                               i * sizeof(T));
  }
  for (; i < end; ++i) {
    reduce_lanes<T, Op, 1>(sources, source_count, destinations, destination_count, i * sizeof(T));
  }
}

template <typename T>
Reduction find_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return &reduce<T, Sum>;
    case ReduceOp::min:
      return &reduce<T, Min>;
    case ReduceOp::max:
      return &reduce<T, Max>;
  }
  return nullptr;
}

}  // namespace

Reduction find(ElementType type, ReduceOp op);

Reduction find(ElementType type, ReduceOp op) {
  switch (type) {
    case ElementType::f32:
      return find_op<float>(op);
    case ElementType::f64:
      return find_op<double>(op);
    case ElementType::bf16:
      return find_op<Bfloat16>(op);
    case ElementType::i32:
      return find_op<std::int32_t>(op);
    case ElementType::i64:
      return find_op<std::int64_t>(op);
    case ElementType::u8:
      return find_op<std::uint8_t>(op);
  }
  return nullptr;
}

}  // namespace rondo::transport::RONDO_REDUCTION_SET

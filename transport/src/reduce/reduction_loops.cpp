// The reduction loops. Compiled once per instruction set, each time with its own flags and with the
// name of its namespace as RONDO_REDUCTION_SET: see meson.build. Everything else is internal. No
// inline function of the standard library is called: the linker could take this copy of it for
// the whole program, on a CPU without these instructions.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "reduce/reduce.hpp"

// The elements of a loop do not depend on each other, whatever the compiler must assume of the
// pointers: buffers are the same or do not overlap.
#if defined(__clang__)
#define RONDO_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
// Sanitized builds cannot keep that promise, and need not say so.
#pragma clang diagnostic ignored "-Wpass-failed"
#else
#define RONDO_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace rondo::transport::RONDO_REDUCTION_SET {
namespace {

constexpr std::size_t cache_line_bytes = 64;
// Bytes that are summed at a time, and how far ahead of them lines are asked for.
constexpr std::size_t block_bytes = 1024;
constexpr std::size_t prefetch_bytes = 1024;

// How an element is loaded, and put into memory. encode() returns no structure: compilers do not
// vectorize loops that copy structures.
template <typename T>
struct Storage {
  using Sum = T;
  static T load(T value) { return value; }
  static T encode(T value) { return value; }
  static void put(T& into, T value) { into = value; }
};

// `yes` where `condition` holds, else `no`, without a branch: loops with branches are not made
// vectors of.
std::uint32_t choose(bool condition, std::uint32_t yes, std::uint32_t no) {
  const std::uint32_t mask = 0U - static_cast<std::uint32_t>(condition);
  return (yes & mask) | (no & ~mask);
}

template <>
struct Storage<Bfloat16> {
  using Sum = float;
  static float load(Bfloat16 value) {
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(value.bits) << 16U);
  }
  // Round to nearest even; a NaN stays one.
  static std::uint16_t encode(float value) {
    const auto bits = __builtin_bit_cast(std::uint32_t, value);
    const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U;
    const std::uint32_t quiet = (bits >> 16U) | 0x40U;
    const bool is_nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
    return static_cast<std::uint16_t>(choose(is_nan, quiet, rounded));
  }
  static void put(Bfloat16& into, std::uint16_t bits) { into.bits = bits; }
};

template <>
struct Storage<Float16> {
  using Sum = float;
  static constexpr std::uint32_t bias = 112U << 23U;  // between the exponents of the two formats
  static constexpr float smallest = 0x1p-24F;

  // By integers, which the compiler makes vectors of, and which do not flush denormals.
  static float load(Float16 value) {
    const std::uint32_t sign = (value.bits & 0x8000U) << 16U;
    const std::uint32_t rest = value.bits & 0x7FFFU;
    const std::uint32_t normal = (rest << 13U) + bias;
    const std::uint32_t finite_or_not = normal + choose(rest >= 0x7C00U, bias, 0);
    const float denormal = static_cast<float>(static_cast<std::int32_t>(rest)) * smallest;
    const auto small = __builtin_bit_cast(std::uint32_t, denormal);
    return __builtin_bit_cast(float, sign | choose(rest < 0x400U, small, finite_or_not));
  }
  // Round to nearest even; a NaN stays one. In the sum with one half the last bit of the float is
  // that of a denormal half.
  static std::uint16_t encode(float value) {
    const auto bits = __builtin_bit_cast(std::uint32_t, value);
    const std::uint32_t sign = (bits >> 16U) & 0x8000U;
    const std::uint32_t rest = bits & 0x7FFFFFFFU;
    const std::uint32_t normal = (rest - bias + 0xFFFU + ((rest >> 13U) & 1U)) >> 13U;
    const float shifted = __builtin_bit_cast(float, rest) + 0.5F;
    const std::uint32_t denormal = __builtin_bit_cast(std::uint32_t, shifted) - 0x3F000000U;
    std::uint32_t half = choose(rest < 0x38800000U, denormal, normal);
    half = choose(rest >= 0x47800000U, 0x7C00U, half);
    half = choose(rest > 0x7F800000U, 0x7E00U | ((rest >> 13U) & 0x3FFU), half);
    return static_cast<std::uint16_t>(sign | half);
  }
  static void put(Float16& into, std::uint16_t bits) { into.bits = bits; }
};

// Most operations do nothing to the join of all sources.
struct Unfinished {
  template <typename T>
  static T finish(T joined, std::size_t /*sources*/) {
    return joined;
  }
};

struct Sum : Unfinished {
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

// C++ multiplies small integers as int, which would overflow.
struct Prod : Unfinished {
  template <typename T>
  static T join(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
    } else {
      return a * b;
    }
  }
};

struct Avg {
  template <typename T>
  static T join(T a, T b) {
    return Sum::join(a, b);
  }
  template <typename T>
  static T finish(T joined, std::size_t sources) {
    // A short integer need not hold the number of ranks.
    using Divisor =
        std::conditional_t<std::is_integral_v<T> && sizeof(T) < sizeof(int), std::int64_t, T>;
    return static_cast<T>(joined / static_cast<Divisor>(sources));
  }
};

struct BitAnd : Unfinished {
  template <typename T>
  static T join(T a, T b) {
    return static_cast<T>(a & b);
  }
};

struct BitOr : Unfinished {
  template <typename T>
  static T join(T a, T b) {
    return static_cast<T>(a | b);
  }
};

struct BitXor : Unfinished {
  template <typename T>
  static T join(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

template <typename T>
bool is_nan(T value) {
  if constexpr (std::is_floating_point_v<T>) return __builtin_isnan(value);
  return false;
}

// A NaN gets through whichever side it comes from.
struct Min : Unfinished {
  template <typename T>
  static T join(T a, T b) {
    return (b < a || is_nan(b)) ? b : a;
  }
};

struct Max : Unfinished {
  template <typename T>
  static T join(T a, T b) {
    return (b > a || is_nan(b)) ? b : a;
  }
};

template <typename T>
const T* typed(const std::byte* bytes) {
  return reinterpret_cast<const T*>(bytes);
}

template <typename T>
T* typed(std::byte* bytes) {
  return reinterpret_cast<T*>(bytes);
}

// Does it pay to ask for lines before they are stored to? It does on Intel's processors. On a Zen 4
// it made reductions of 1 to 64 MiB 8 to 23 % slower.
#if defined(__x86_64__)
const bool asks_ahead = __builtin_cpu_is("intel") != 0;
#else
constexpr bool asks_ahead = true;
#endif

// Asks for the lines of a peer's buffer in a state that can be written. A line that is read first
// and stored to later crosses between the cores once for its data and once more for the right to
// change it; with the request ahead, once.
template <typename T>
void prefetch_to_write(const T* first) {
  if (!asks_ahead) return;
  for (std::size_t i = 0; i < block_bytes; i += cache_line_bytes) {
    __builtin_prefetch(first + (prefetch_bytes + i) / sizeof(T), 1, 3);
  }
}

// Two ranks, the commonest case: nothing but loads, joins and stores.
template <typename T, typename Op, bool Both>
void reduce_two(const T* a, const T* b, T* into, T* also_into, std::size_t begin, std::size_t end) {
  using S = Storage<T>;
  constexpr std::size_t block = block_bytes / sizeof(T);
  std::size_t i = begin;
  while (i < end) {
    const std::size_t last = end - i < block ? end : i + block;
    if constexpr (Both) {
      prefetch_to_write(into + i);
      prefetch_to_write(also_into + i);
    }
    RONDO_INDEPENDENT
    for (std::size_t k = i; k < last; ++k) {
      const auto value = S::encode(Op::finish(Op::join(S::load(a[k]), S::load(b[k])), 2));
      S::put(into[k], value);
      if constexpr (Both) S::put(also_into[k], value);
    }
    i = last;
  }
}

// Any number: a block at a time, summed in the first-level cache before anything is stored, so a
// destination may be a source.
template <typename T, typename Op>
void reduce_many(const std::byte* const* sources, std::size_t source_count,
                 std::byte* const* destinations, std::size_t destination_count, std::size_t begin,
                 std::size_t end) {
  using S = Storage<T>;
  constexpr std::size_t block = block_bytes / sizeof(T);
  typename S::Sum sums[block];
  for (std::size_t i = begin; i < end; i += block) {
    const std::size_t count = end - i < block ? end - i : block;
    const T* first = typed<T>(sources[0]) + i;
    for (std::size_t k = 0; k < count; ++k) sums[k] = S::load(first[k]);
    for (std::size_t s = 1; s < source_count; ++s) {
      const T* source = typed<T>(sources[s]) + i;
      for (std::size_t k = 0; k < count; ++k) sums[k] = Op::join(sums[k], S::load(source[k]));
    }
    for (std::size_t d = 0; d < destination_count; ++d) {
      T* into = typed<T>(destinations[d]) + i;
      if (destination_count > 1) prefetch_to_write(into);
      for (std::size_t k = 0; k < count; ++k) {
        S::put(into[k], S::encode(Op::finish(sums[k], source_count)));
      }
    }
  }
}

template <typename T, typename Op>
void reduce(const std::byte* const* sources, std::size_t source_count,
            std::byte* const* destinations, std::size_t destination_count, std::size_t begin,
            std::size_t end) {
  if (source_count == 2 && destination_count <= 2) {
    const T* a = typed<T>(sources[0]);
    const T* b = typed<T>(sources[1]);
    T* into = typed<T>(destinations[0]);
    if (destination_count == 1) {
      reduce_two<T, Op, false>(a, b, into, nullptr, begin, end);
    } else {
      reduce_two<T, Op, true>(a, b, into, typed<T>(destinations[1]), begin, end);
    }
    return;
  }
  reduce_many<T, Op>(sources, source_count, destinations, destination_count, begin, end);
}

// Bits do not know which elements they belong to.
template <typename T, typename Op>
void reduce_bits(const std::byte* const* sources, std::size_t source_count,
                 std::byte* const* destinations, std::size_t destination_count, std::size_t begin,
                 std::size_t end) {
  reduce<std::uint8_t, Op>(sources, source_count, destinations, destination_count,
                           begin * sizeof(T), end * sizeof(T));
}

// Sums and products of signed and unsigned integers are the same bits.
template <typename T>
struct UnsignedOf {
  using Type = T;
};
template <typename T>
  requires std::is_integral_v<T>
struct UnsignedOf<T> {
  using Type = std::make_unsigned_t<T>;
};

template <typename T>
Reduction find_op(ReduceOp op) {
  using U = typename UnsignedOf<T>::Type;
  switch (op) {
    case ReduceOp::sum:
      return &reduce<U, Sum>;
    case ReduceOp::prod:
      return &reduce<U, Prod>;
    case ReduceOp::min:
      return &reduce<T, Min>;
    case ReduceOp::max:
      return &reduce<T, Max>;
    case ReduceOp::avg:
      return &reduce<T, Avg>;
    default:
      break;
  }
  if constexpr (std::is_integral_v<T>) {
    switch (op) {
      case ReduceOp::bit_and:
        return &reduce_bits<T, BitAnd>;
      case ReduceOp::bit_or:
        return &reduce_bits<T, BitOr>;
      case ReduceOp::bit_xor:
        return &reduce_bits<T, BitXor>;
      default:
        break;
    }
  }
  return nullptr;
}

// Divides elements of one array, after their sum was made in several steps.
template <typename T>
void divide(std::byte* data, std::size_t count, std::size_t divisor) {
  using S = Storage<T>;
  T* elements = typed<T>(data);
  for (std::size_t i = 0; i < count; ++i) {
    S::put(elements[i], S::encode(Avg::finish(S::load(elements[i]), divisor)));
  }
}

// Calls use.operator()<T>() with the C++ type of the elements.
template <typename Result, typename Use>
Result with_type(ElementType type, Use use) {
  switch (type) {
    case ElementType::f32:
      return use.template operator()<float>();
    case ElementType::f64:
      return use.template operator()<double>();
    case ElementType::bf16:
      return use.template operator()<Bfloat16>();
    case ElementType::f16:
      return use.template operator()<Float16>();
    case ElementType::i8:
      return use.template operator()<std::int8_t>();
    case ElementType::i16:
      return use.template operator()<std::int16_t>();
    case ElementType::i32:
      return use.template operator()<std::int32_t>();
    case ElementType::i64:
      return use.template operator()<std::int64_t>();
    case ElementType::u8:
      return use.template operator()<std::uint8_t>();
    case ElementType::u16:
      return use.template operator()<std::uint16_t>();
    case ElementType::u32:
      return use.template operator()<std::uint32_t>();
    case ElementType::u64:
      return use.template operator()<std::uint64_t>();
  }
  return nullptr;
}

}  // namespace

Reduction find(ElementType type, ReduceOp op);
Division find_division(ElementType type);

Reduction find(ElementType type, ReduceOp op) {
  return with_type<Reduction>(type, [op]<typename T>() { return find_op<T>(op); });
}

Division find_division(ElementType type) {
  return with_type<Division>(type, []<typename T>() -> Division { return &divide<T>; });
}

}  // namespace rondo::transport::RONDO_REDUCTION_SET

// Our own loops. Compiled once per instruction set, each time with its own flags, with its name as
// RONDO_TENSOR_INSTRUCTION_SET and the width of its vectors as RONDO_TENSOR_VECTOR_FLOATS: see
// meson.build.
//
// Everything lives in the unnamed namespace and uses no inline function of anybody else: the linker
// would keep one copy of such a function for all variants, perhaps the one that this CPU cannot
// run.
//
// Apart from two conversions of bf16 the code is written with the compiler's vector extensions and
// not with intrinsics, so that there is one text for all instruction sets. Multiplications and
// additions are not contracted (-ffp-contract=off), and a sum has the same terms in the same order
// whatever the vector's width; that makes all variants agree bit for bit. Loads and stores go
// through memcpy, because rows of channels have any alignment.

#include "kernels.hpp"

#ifdef __AVX512F__
#include <immintrin.h>
#endif

namespace rondo::tensor::RONDO_TENSOR_INSTRUCTION_SET {
namespace {

constexpr std::size_t vector_floats = RONDO_TENSOR_VECTOR_FLOATS;

using Vector = float __attribute__((vector_size(RONDO_TENSOR_VECTOR_FLOATS * sizeof(float))));

using Words =
    unsigned int __attribute__((vector_size(RONDO_TENSOR_VECTOR_FLOATS * sizeof(unsigned int))));
using Halves = unsigned short
    __attribute__((vector_size(RONDO_TENSOR_VECTOR_FLOATS * sizeof(unsigned short))));

// Memory has any alignment.
[[gnu::always_inline]] inline Vector load(const float* from) {
  Vector value;
  __builtin_memcpy(&value, from, sizeof(value));
  return value;
}

[[gnu::always_inline]] inline void store(float* into, Vector value) {
  __builtin_memcpy(into, &value, sizeof(value));
}

// A bf16 number is the upper half of a float. Compilers widen 16 numbers by a detour over two
// shorter vectors. The mask lets all of them through; gcc 12 warns of the intrinsic without one.
[[gnu::always_inline]] inline Words widened(const Bfloat16* from) {
  Halves halves;
  __builtin_memcpy(&halves, from, sizeof(halves));
#ifdef __AVX512F__
  __m256i words;
  __builtin_memcpy(&words, &halves, sizeof(words));
  constexpr __mmask16 all = 0xffff;
  const __m512i wide = _mm512_maskz_cvtepu16_epi32(all, words);
  Words result;
  __builtin_memcpy(&result, &wide, sizeof(result));
  return result;
#else
  return __builtin_convertvector(halves, Words);
#endif
}

[[gnu::always_inline]] inline Vector load(const Bfloat16* from) {
  const Words words = widened(from) << 16U;
  Vector value;
  __builtin_memcpy(&value, &words, sizeof(value));
  return value;
}

// As to_bfloat16(), which says what it does, for a vector of words or for one.
template <typename T, typename Mask>
[[gnu::always_inline]] inline T rounded(T words, Mask is_nan) {
  // Rounds to the nearest, ties to the even: adds half of the lowest bit that stays, or one less
  // where that bit is 0. A NaN is made a quiet one, so that cutting cannot make an infinity of it.
  // A denormal number becomes zero with its sign.
  const T nearest = words + 0x7fffU + ((words >> 16U) & 1U);
  const T normal = (words & 0x7f800000U) == 0U ? words & 0x80000000U : nearest;
  return (is_nan ? words | 0x400000U : normal) >> 16U;
}

// The instruction does the same in one step.
[[gnu::always_inline]] inline void store(Bfloat16* into, Vector value) {
#ifdef __AVX512BF16__
  const __m256bh halves = _mm512_cvtneps_pbh(value);
  __builtin_memcpy(into, &halves, sizeof(halves));
#else
  Words words;
  __builtin_memcpy(&words, &value, sizeof(words));
  const Halves halves = __builtin_convertvector(rounded(words, value != value), Halves);
  __builtin_memcpy(into, &halves, sizeof(halves));
#endif
}

[[gnu::always_inline]] inline float load_one(const float* from) { return *from; }
[[gnu::always_inline]] inline float load_one(const Bfloat16* from) {
  const unsigned int word = static_cast<unsigned int>(from->bits) << 16U;
  float value;
  __builtin_memcpy(&value, &word, sizeof(value));
  return value;
}

// The same formula for a vector and for one number of a short row: get<Vector>(p), get<float>(p).
template <typename T, typename Stored>
[[gnu::always_inline]] inline T get(const Stored* from) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return load_one(from);
  } else {
    return load(from);
  }
}
template <typename Stored>
[[gnu::always_inline]] inline void put(Stored* into, Vector value) {
  store(into, value);
}
[[gnu::always_inline]] inline void put(float* into, float value) { *into = value; }
[[gnu::always_inline]] inline void put(Bfloat16* into, float value) {
  unsigned int word;
  __builtin_memcpy(&word, &value, sizeof(word));
  into->bits = static_cast<unsigned short>(rounded(word, value != value));
}

// max(value, 0) that lets NaN through, as PyTorch's does.
[[gnu::always_inline]] inline Vector relu(Vector value) {
  const Vector zero = {};
  return value < zero ? zero : value;
}
[[gnu::always_inline]] inline float relu(float value) { return value < 0.0F ? 0.0F : value; }

// The gradient before a ReLU from the one after it and the ReLU's input or output.
[[gnu::always_inline]] inline Vector gate(Vector activated, Vector gradient) {
  const Vector zero = {};
  return activated <= zero ? zero : gradient;
}
[[gnu::always_inline]] inline float gate(float activated, float gradient) {
  return activated <= 0.0F ? 0.0F : gradient;
}

[[gnu::always_inline]] inline Vector at_most(Vector value, float most) {
  const Vector limit = most - Vector{};
  return value > limit ? limit : value;
}
[[gnu::always_inline]] inline float at_most(float value, float most) {
  return value > most ? most : value;
}

// Where the limit has cut, nothing passes.
[[gnu::always_inline]] inline Vector gate_below(Vector activated, float most, Vector gradient) {
  const Vector zero = {};
  const Vector limit = most - zero;
  return activated >= limit ? zero : gate(activated, gradient);
}
[[gnu::always_inline]] inline float gate_below(float activated, float most, float gradient) {
  return activated >= most ? 0.0F : gate(activated, gradient);
}

// Whole vectors, then the rest one by one; the other loops over dense memory are alike.
template <typename Stored>
void relu(const Stored* x, Stored* y, std::size_t count, float most) {
  std::size_t i = 0;
  for (; i + vector_floats <= count; i += vector_floats) {
    store(y + i, at_most(relu(load(x + i)), most));
  }
  for (; i < count; ++i) put(y + i, at_most(relu(load_one(x + i)), most));
}

template <typename Stored>
void backward_relu(const Stored* y, Stored* dy, std::size_t count, float most) {
  std::size_t i = 0;
  for (; i + vector_floats <= count; i += vector_floats) {
    store(dy + i, gate_below(load(y + i), most, load(dy + i)));
  }
  for (; i < count; ++i) put(dy + i, gate_below(load_one(y + i), most, load_one(dy + i)));
}

template <typename Stored>
void add(const Stored* from, Stored* into, std::size_t count) {
  std::size_t i = 0;
  for (; i + vector_floats <= count; i += vector_floats) {
    store(into + i, load(into + i) + load(from + i));
  }
  for (; i < count; ++i) put(into + i, load_one(into + i) + load_one(from + i));
}

template <typename From, typename Into>
void convert(const From* from, Into* into, std::size_t count) {
  std::size_t i = 0;
  for (; i + vector_floats <= count; i += vector_floats) store(into + i, load(from + i));
  for (; i < count; ++i) put(into + i, load_one(from + i));
}

// How batch norm's loops walk over rows of `width` floats (see kernels.hpp).

// Calls apply(element, lane, T{}) for every vector of every row, and for every float of a last,
// short row.
template <typename Apply>
[[gnu::always_inline]] inline void for_each_vector(std::size_t count, std::size_t width,
                                                   const Apply& apply) {
  std::size_t row = 0;
  for (; row + width <= count; row += width) {
#pragma GCC unroll 4
    for (std::size_t lane = 0; lane < width; lane += vector_floats) {
      apply(row + lane, lane, Vector{});
    }
  }
  for (std::size_t lane = 0; row + lane < count; ++lane) apply(row + lane, lane, float{});
}

// Sums of two terms per lane. Floats hold them over a short run of rows, which is as fast as
// memory, and doubles from run to run, which is accurate. Every lane adds its rows in order,
// whatever the vector's width: so all variants agree.
constexpr std::size_t rows_per_run = 64;

using Half = float __attribute__((vector_size(RONDO_TENSOR_VECTOR_FLOATS / 2 * sizeof(float))));
using Doubles =
    double __attribute__((vector_size(RONDO_TENSOR_VECTOR_FLOATS / 2 * sizeof(double))));

// Adds a vector of floats to the doubles of its lanes.
[[gnu::always_inline]] inline void flush(Vector values, double* into) {
  Half halves[2];
  __builtin_memcpy(&halves, &values, sizeof(values));
#pragma GCC unroll 2
  for (const Half& half : halves) {
    Doubles sums;
    __builtin_memcpy(&sums, into, sizeof(sums));
    sums += __builtin_convertvector(half, Doubles);
    __builtin_memcpy(into, &sums, sizeof(sums));
    into += vector_floats / 2;
  }
}

// One run over `vectors` neighbouring vectors. Several of them, so that additions overlap.
template <std::size_t vectors, typename Terms>
[[gnu::always_inline]] inline void sum_strip(const Terms& terms, std::size_t row, std::size_t rows,
                                             std::size_t width, std::size_t lane, double* first,
                                             double* second) {
  Vector a[vectors] = {};
  Vector b[vectors] = {};
  for (std::size_t r = 0; r < rows; ++r) {
    const std::size_t element = row + r * width + lane;
#pragma GCC unroll 4
    for (std::size_t v = 0; v < vectors; ++v) {
      terms(element + v * vector_floats, lane + v * vector_floats, a[v], b[v]);
    }
  }
#pragma GCC unroll 4
  for (std::size_t v = 0; v < vectors; ++v) {
    // After a run of rows the floats go to the doubles, so that a float sums at most rows_per_run
    // terms.
    flush(a[v], first + lane + v * vector_floats);
    flush(b[v], second + lane + v * vector_floats);
  }
}

// Adds the two terms of all elements to the sums of their lanes. `terms` adds an element's terms
// to its last two arguments.
template <typename Terms>
[[gnu::always_inline]] inline void sum_rows(std::size_t count, std::size_t width,
                                            const Terms& terms, double* first, double* second) {
  const std::size_t whole_rows = count / width;
  for (std::size_t row = 0; row < whole_rows; row += rows_per_run) {
    const std::size_t left = whole_rows - row;
    const std::size_t rows = left < rows_per_run ? left : rows_per_run;
    std::size_t lane = 0;
    // Four vectors at once hide the latency of the additions; the width is a multiple of 16 floats,
    // so that whole vectors remain.
    for (; lane + 4 * vector_floats <= width; lane += 4 * vector_floats) {
      sum_strip<4>(terms, row * width, rows, width, lane, first, second);
    }
    for (; lane < width; lane += vector_floats) {
      sum_strip<1>(terms, row * width, rows, width, lane, first, second);
    }
  }
  for (std::size_t lane = 0; whole_rows * width + lane < count; ++lane) {
    // The last, short row: each float is its own sum.
    float a = 0.0F;
    float b = 0.0F;
    terms(whole_rows * width + lane, lane, a, b);
    first[lane] += static_cast<double>(a);
    second[lane] += static_cast<double>(b);
  }
}

// Distances from an origin near the mean, so that squares stay small and do not cancel.
template <typename Stored>
void sum_moments(const SumMoments<Stored>& task) {
  const auto terms = [task](std::size_t i, std::size_t lane, auto& sum, auto& square) {
    using T = __typeof__(sum + sum);
    const T distance = get<T>(task.x + i) - get<T>(task.origin + lane);
    sum += distance;
    square += distance * distance;
  };
  sum_rows(task.count, task.width, terms, task.sums, task.squares);
}

// The one formula of forward and backward, so that backward opens the gate exactly where forward
// was positive.
template <typename T, typename Task>
[[gnu::always_inline]] inline T normalised(const Task& task, std::size_t i, std::size_t lane) {
  return (get<T>(task.x + i) - get<T>(task.mean + lane)) * get<T>(task.factor + lane) +
         get<T>(task.shift + lane);
}

// One loop for each combination of what a layer may have, chosen once per call.
template <bool with_residual, bool rectified, typename Stored>
void normalise_as(const Normalise<Stored>& task) {
  for_each_vector(task.count, task.width, [task](std::size_t i, std::size_t lane, auto kind) {
    using T = decltype(kind);
    T value = normalised<T>(task, i, lane);
    if constexpr (with_residual) value += get<T>(task.residual + i);
    if constexpr (rectified) value = relu(value);
    put(task.y + i, value);
  });
}

template <typename Stored>
void normalise(const Normalise<Stored>& task) {
  if (task.residual != nullptr) {
    task.rectified ? normalise_as<true, true>(task) : normalise_as<true, false>(task);
  } else {
    task.rectified ? normalise_as<false, true>(task) : normalise_as<false, false>(task);
  }
}

// The gradient after the ReLU is written back only where the second pass could not have it again.
template <Gate gate_kind, bool merged, typename Stored>
void sum_gradients_as(const SumGradients<Stored>& task) {
  const auto terms = [task](std::size_t i, std::size_t lane, auto& sum, auto& product) {
    using T = __typeof__(sum + sum);
    T gradient = get<T>(task.dy + i);
    if constexpr (merged) gradient += get<T>(task.also + i);
    if constexpr (gate_kind == Gate::recomputed) {
      gradient = gate(normalised<T>(task, i, lane), gradient);
    }
    if constexpr (gate_kind == Gate::output) gradient = gate(get<T>(task.y + i), gradient);
    if constexpr (gate_kind == Gate::output || merged) put(task.dy + i, gradient);
    sum += gradient;
    product += gradient * (get<T>(task.x + i) - get<T>(task.mean + lane));
  };
  sum_rows(task.count, task.width, terms, task.sums, task.products);
}

template <bool merged, typename Stored>
void sum_gradients_of(const SumGradients<Stored>& task) {
  switch (task.gate) {
    case Gate::open:
      return sum_gradients_as<Gate::open, merged>(task);
    case Gate::recomputed:
      return sum_gradients_as<Gate::recomputed, merged>(task);
    case Gate::output:
      return sum_gradients_as<Gate::output, merged>(task);
  }
}

template <typename Stored>
void sum_gradients(const SumGradients<Stored>& task) {
  task.also == nullptr ? sum_gradients_of<false>(task) : sum_gradients_of<true>(task);
}

// dx of the formula in kernels.hpp; reads x and dy, writes dx, all in one pass.
template <bool gated, typename Stored>
void input_gradients_as(const InputGradients<Stored>& task) {
  for_each_vector(task.count, task.width, [task](std::size_t i, std::size_t lane, auto kind) {
    using T = decltype(kind);
    T gradient = get<T>(task.dy + i);
    if constexpr (gated) gradient = gate(normalised<T>(task, i, lane), gradient);
    const T distance = get<T>(task.x + i) - get<T>(task.mean + lane);
    put(task.dx + i, get<T>(task.factor + lane) * (gradient - get<T>(task.offset + lane) -
                                                   distance * get<T>(task.slope + lane)));
  });
}

template <typename Stored>
void input_gradients(const InputGradients<Stored>& task) {
  task.gate == Gate::recomputed ? input_gradients_as<true>(task) : input_gradients_as<false>(task);
}

template <typename Stored>
constexpr Loops<Stored> loops_of = {
    .relu = relu,
    .backward_relu = backward_relu,
    .add = add,
    .sum_moments = sum_moments,
    .normalise = normalise,
    .sum_gradients = sum_gradients,
    .input_gradients = input_gradients,
};

}  // namespace

// The symbol that choice.cpp knows: one for each namespace that this file is compiled for.
const Kernels loops = {
    .f32 = loops_of<float>,
    .bf16 = loops_of<Bfloat16>,
    .narrow = convert,
    .widen = convert,
};

}  // namespace rondo::tensor::RONDO_TENSOR_INSTRUCTION_SET

// The loops of resample(). Compiled once per instruction set, each time with its own flags and with
// its name as RONDO_TRAIN_INSTRUCTION_SET: see meson.build. As in tensor's kernels everything lives
// in the unnamed namespace and uses no inline function of anybody else, because the linker would
// keep one copy of such a function for all variants.
//
// Sums stay in registers until they are finished. They are floats and not integers, because every
// instruction set multiplies floats in one instruction, but 32-bit integers in several; both give
// the same pixels, as all values are exact (see resample_kernels.hpp).

#include "data/resample_kernels.hpp"

namespace rondo::train::RONDO_TRAIN_INSTRUCTION_SET {
namespace {

#if defined(__AVX512F__)
constexpr std::size_t vector_floats = 16;
#elif defined(__AVX2__)
constexpr std::size_t vector_floats = 8;
#else
constexpr std::size_t vector_floats = 4;
#endif

// One pixel of up to 4 channels, and a part of a row.
using Pixel = float __attribute__((vector_size(4 * sizeof(float))));
using PixelWords = int __attribute__((vector_size(4 * sizeof(int))));
using Part = float __attribute__((vector_size(vector_floats * sizeof(float))));
using Words = int __attribute__((vector_size(vector_floats * sizeof(int))));

constexpr std::size_t parts_of_block = row_block / vector_floats;

// Memory has any alignment.
template <class T, class Vector>
[[gnu::always_inline]] inline void load(const T* from, Vector& value) {
  __builtin_memcpy(&value, from, sizeof(value));
}

template <class T, class Vector>
[[gnu::always_inline]] inline void store(T* into, const Vector& value) {
  __builtin_memcpy(into, &value, sizeof(value));
}

// A loop as simple as this one the compiler vectorises.
[[gnu::always_inline]] inline void widen(const std::uint8_t* __restrict in, std::size_t count,
                                         float* __restrict out) {
  for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<float>(in[i]);
}

// A pixel of fewer than 4 channels is read with what follows it, and written before what follows
// it is: what is too much is overwritten. `some` is the number of taps, or 0 for any number.
template <std::size_t some>
void sum_columns(const ResampleKernels::Columns& pass) {
  const std::size_t taps = some == 0 ? pass.taps : some;
  const std::size_t channels = pass.channels;
  const std::size_t pixels = pass.pixels;
  const float* __restrict widened = pass.widened;
  const float* __restrict weights = pass.weights;
  const std::uint32_t* __restrict offsets = pass.offsets;
  float* __restrict out = pass.out;
  for (std::size_t i = 0; i < pixels; ++i, weights += taps, out += channels) {
    const float* in = widened + offsets[i];
    Pixel sum = {0.5F, 0.5F, 0.5F, 0.5F};
    for (std::size_t tap = 0; tap < taps; ++tap, in += channels) {
      Pixel pixel;
      load(in, pixel);
      sum += weights[tap] * pixel;
    }
    // To the nearest integer, as the 8 bits of an image hold it.
    store(out, __builtin_convertvector(__builtin_convertvector(sum, PixelWords), Pixel));
  }
}

void columns(const ResampleKernels::Columns& pass) {
  widen(pass.in, pass.in_values, pass.widened);
  // Weights of 0 may stand behind the last value: it must be followed by numbers.
  const std::size_t tail = pass.taps * pass.channels + 4;
  for (std::size_t i = 0; i < tail; ++i) pass.widened[pass.in_values + i] = 0.0F;
  switch (pass.taps) {
    case 1:
      return sum_columns<1>(pass);
    case 2:
      return sum_columns<2>(pass);
    case 3:
      return sum_columns<3>(pass);
    case 4:
      return sum_columns<4>(pass);
    default:
      return sum_columns<0>(pass);
  }
}

// Makes row_block bytes of the values from `first` on.
template <std::size_t some>
[[gnu::always_inline]] inline void sum_block(const ResampleKernels::Rows& pass, std::size_t first,
                                             std::uint8_t* __restrict out) {
  const std::size_t taps = some == 0 ? pass.taps : some;
  Part sums[parts_of_block];
  for (Part& sum : sums) sum = Part{} + 0.5F;
  for (std::size_t tap = 0; tap < taps; ++tap) {
    const float* in = pass.in[tap] + first;
    const float weight = pass.weights[tap];
    for (std::size_t part = 0; part < parts_of_block; ++part) {
      Part values;
      load(in + part * vector_floats, values);
      sums[part] += weight * values;
    }
  }
  int words[row_block];
  for (std::size_t part = 0; part < parts_of_block; ++part) {
    store(words + part * vector_floats, __builtin_convertvector(sums[part], Words));
  }
  for (std::size_t i = 0; i < row_block; ++i) out[i] = static_cast<std::uint8_t>(words[i]);
}

template <std::size_t some>
void sum_rows(const ResampleKernels::Rows& pass) {
  std::size_t i = 0;
  for (; i + row_block <= pass.values; i += row_block) sum_block<some>(pass, i, pass.out + i);
  if (i == pass.values) return;
  std::uint8_t rest[row_block];
  sum_block<some>(pass, i, rest);
  __builtin_memcpy(pass.out + i, rest, pass.values - i);
}

void rows(const ResampleKernels::Rows& pass) {
  switch (pass.taps) {
    case 1:
      return sum_rows<1>(pass);
    case 2:
      return sum_rows<2>(pass);
    case 3:
      return sum_rows<3>(pass);
    default:
      return sum_rows<0>(pass);
  }
}

}  // namespace

extern const ResampleKernels resample_kernels = {.columns = columns, .rows = rows};

}  // namespace rondo::train::RONDO_TRAIN_INSTRUCTION_SET

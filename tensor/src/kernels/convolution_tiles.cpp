// The innermost loops of our own convolutions. Compiled for AVX-512, where they compute in fp32,
// and for AVX512_BF16, where they multiply pairs of bf16 and add them in fp32: see meson.build.
//
// A step loads the filters of a tile once and broadcasts one channel after another, so that nearly
// every instruction is a multiplication. In fp32 multiplication and addition are fused; a tile's
// result depends on nothing but its operands.
//
// As in kernels.cpp no inline function of anybody else is used.

#include "convolution_tiles.hpp"

#include <immintrin.h>

#ifdef __clang__
#define RONDO_UNROLL _Pragma("unroll")
#else
#define RONDO_UNROLL _Pragma("GCC unroll 32")
#endif

namespace rondo::tensor::RONDO_TENSOR_INSTRUCTION_SET {
namespace {

using Byte = unsigned char;

constexpr std::ptrdiff_t unit = 4;  // bytes
constexpr int vector_floats = 16;
constexpr std::ptrdiff_t cache_line = 64;  // bytes
constexpr int second_level = 2;            // where prefetches go

[[gnu::always_inline]] inline __m512i load(const Byte* from) { return _mm512_loadu_si512(from); }

[[gnu::always_inline]] inline __m512i broadcast(const Byte* from) {
  int value;
  __builtin_memcpy(&value, from, sizeof(value));
  return _mm512_set1_epi32(value);
}

[[gnu::always_inline]] inline __m512 multiply_add(__m512i a, __m512i b, __m512 sum) {
#ifdef __AVX512BF16__
  __m512bh left;
  __m512bh right;
  __builtin_memcpy(&left, &a, sizeof(a));
  __builtin_memcpy(&right, &b, sizeof(b));
  return _mm512_dpbf16_ps(sum, left, right);
#else
  return _mm512_fmadd_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), sum);
#endif
}

// The sums of a tile: one line for each value of x that a step uses, one vector of a line for each
// vector of dy. One of x_taps and dy_taps is one, the other is three: that operand is shifted. All
// loops over constants are unrolled, so that the sums are registers.
template <int x_taps, int channels, int dy_taps, int vectors>
struct Sums {
  static constexpr int lines = x_taps * channels;
  static constexpr int width = dy_taps * vectors;

  [[gnu::always_inline]] void clear() {
    RONDO_UNROLL for (int i = 0; i < lines * width; ++i) sums[i] = _mm512_setzero_ps();
  }

  [[gnu::always_inline]] void add_step(const Byte* x, const Byte* dy,
                                       const std::ptrdiff_t* shifts) {
    __m512i filters[width];
    RONDO_UNROLL for (int i = 0; i < width; ++i) {
      const std::ptrdiff_t shift = dy_taps > 1 ? shifts[i / vectors] : 0;
      filters[i] = load(dy + shift + i % vectors * vector_floats * unit);
    }
    RONDO_UNROLL for (int line = 0; line < lines; ++line) {
      const std::ptrdiff_t shift = x_taps > 1 ? shifts[line / channels] : 0;
      const __m512i value = broadcast(x + shift + line % channels * unit);
      RONDO_UNROLL for (int i = 0; i < width; ++i) {
        sums[line * width + i] = multiply_add(value, filters[i], sums[line * width + i]);
      }
    }
  }

  [[gnu::always_inline]] void add_to(const WeightTile& tile) const {
    RONDO_UNROLL for (int i = 0; i < lines * width; ++i) {
      const int line = i / width;
      const int tap = x_taps > 1 ? line / channels : i % width / vectors;
      float* into = tile.into + tap * tile.into_tap + line % channels * tile.into_channel +
                    i % vectors * vector_floats;
      _mm512_storeu_ps(into, _mm512_add_ps(_mm512_loadu_ps(into), sums[i]));
    }
  }

  __m512 sums[lines * width];
};

template <int x_taps, int channels, int dy_taps, int vectors>
void weight_tile(const WeightTile& tile) {
  Sums<x_taps, channels, dy_taps, vectors> sums;
  sums.clear();
  const std::ptrdiff_t shifts[tile_taps] = {tile.shifts[0] * unit, tile.shifts[1] * unit,
                                            tile.shifts[2] * unit};
  const auto* ahead = static_cast<const Byte*>(tile.ahead);
  for (std::ptrdiff_t image = 0; image < tile.images; ++image) {
    for (std::ptrdiff_t row = 0; row < tile.rows; ++row) {
      const Byte* x =
          static_cast<const Byte*>(tile.x) + (image * tile.x_image + row * tile.x_row) * unit;
      const Byte* dy =
          static_cast<const Byte*>(tile.dy) + (image * tile.dy_image + row * tile.dy_row) * unit;
      for (std::ptrdiff_t line = 0; line < tile.ahead_lines; ++line, ahead += cache_line) {
        __builtin_prefetch(ahead, 0, second_level);
      }
      for (std::ptrdiff_t step = 0; step < tile.steps; ++step) {
        sums.add_step(x, dy, shifts);
        x += tile.x_step * unit;
        dy += tile.dy_step * unit;
      }
    }
  }
  sums.add_to(tile);
}

constexpr int taps = static_cast<int>(tile_taps);
constexpr WeightTileKind wide = {4, 32, weight_tile<taps, 4, 1, 2>, weight_tile<1, 4, taps, 2>};
constexpr WeightTileKind narrow = {8, 16, weight_tile<taps, 8, 1, 1>, weight_tile<1, 8, taps, 1>};

#ifdef __AVX512BF16__

// gcc 12 warns of some intrinsics without a mask.
constexpr __mmask16 all = 0xffff;

// 16 values of one column, or zeros, in the lower halves of 16 units.
template <bool inside>
[[gnu::always_inline]] inline __m512i halves(const Bfloat16* column) {
  if constexpr (!inside) return _mm512_setzero_si512();
  __m256i values;
  __builtin_memcpy(&values, column, sizeof(values));
  return _mm512_maskz_cvtepu16_epi32(all, values);
}

// One pair of columns. The channels are a multiple of 8; the last 8 may be packed one by one.
template <bool with_first, bool with_second>
[[gnu::always_inline]] inline void pair_columns(const Bfloat16* first, const Bfloat16* second,
                                                std::ptrdiff_t channels, Byte* into) {
  std::ptrdiff_t c = 0;
  for (; c + vector_floats <= channels; c += vector_floats) {
    const __m512i high = _mm512_maskz_slli_epi32(all, halves<with_second>(second + c), 16);
    const __m512i both = _mm512_or_si512(halves<with_first>(first + c), high);
    _mm512_storeu_si512(into + c * unit, both);
  }
  for (; c < channels; ++c) {
    const unsigned low = with_first ? first[c].bits : 0U;
    const unsigned high = with_second ? second[c].bits : 0U;
    const unsigned both = low | high << 16U;
    __builtin_memcpy(into + c * unit, &both, sizeof(both));
  }
}

void pair(const PairedRow& task) {
  auto* into = static_cast<Byte*>(task.into);
  std::ptrdiff_t column = task.first;
  for (std::ptrdiff_t i = 0; i < task.pairs; ++i, column += 2 * task.stride) {
    const std::ptrdiff_t next = column + task.stride;
    const Bfloat16* first = task.row + column * task.channels;
    const Bfloat16* second = task.row + next * task.channels;
    const bool with_first = column >= 0 && column < task.columns;
    const bool with_second = next >= 0 && next < task.columns;
    if (with_first && with_second) {
      pair_columns<true, true>(first, second, task.channels, into);
    } else if (with_first) {
      pair_columns<true, false>(first, second, task.channels, into);
    } else if (with_second) {
      pair_columns<false, true>(first, second, task.channels, into);
    } else {
      pair_columns<false, false>(first, second, task.channels, into);
    }
    into += task.channels * unit;
  }
}

#endif

}  // namespace

#ifdef __AVX512BF16__
const ConvolutionTiles bf16_tiles = {wide, narrow, pair};
#else
const ConvolutionTiles f32_tiles = {wide, narrow, nullptr};
#endif

}  // namespace rondo::tensor::RONDO_TENSOR_INSTRUCTION_SET

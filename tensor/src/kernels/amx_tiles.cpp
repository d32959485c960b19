// The innermost loops of weight gradients on AMX: laying pixels out, and multiplying tiles.
//
// Values that are summed over, here pixels, lie side by side in the rows of the one operand and in
// pairs in the other. Images have their channels side by side, so the one operand is transposed: 32
// pixels by 8 channels at a time, whose 8 x 8 blocks lie in the four lanes of eight registers.
//
// A tile is only loaded fast where its rows do not cross cache lines (4.4 ns for a product at 4.2
// GHz, and 14 ns if they do). So the operand that begins at another pixel for each tap is the one
// in pairs: each pair of pixels fills a line.
//
// The instructions on tiles are written as assembler: the compilers' own names for them take the
// number of a tile as text, not as a constant. No compiler uses tile registers by itself. As in
// kernels.cpp no inline function of anybody else is used.

#include "amx_tiles.hpp"

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef __clang__
#define RONDO_UNROLL _Pragma("unroll")
#else
#define RONDO_UNROLL _Pragma("GCC unroll 32")
#endif

namespace rondo::tensor::amx {
namespace {

constexpr std::ptrdiff_t lane_channels = 8;  // of 16 bits, in 128
constexpr std::ptrdiff_t value_bytes = sizeof(Bfloat16);
constexpr __mmask16 all = 0xffff;  // gcc 12 warns of some intrinsics without a mask

alignas(64) constexpr Bfloat16 zeros[tile_columns] = {};

/// Where the pixels of the positions from `first` lie; `count` is a multiple of 8.
template <std::ptrdiff_t count>
struct Pixels {
  [[gnu::always_inline]] Pixels(const Placement& from, std::ptrdiff_t first,
                                std::ptrdiff_t channel) {
    const std::ptrdiff_t image = first / from.image_positions;
    const std::int32_t* offsets = from.offsets + first % from.image_positions;
    const Bfloat16* const values = from.images + image * from.image_values + channel;
    const __m512i base = _mm512_set1_epi64(reinterpret_cast<std::intptr_t>(values));
    const __m512i nothing = _mm512_set1_epi64(reinterpret_cast<std::intptr_t>(zeros));
    const __m512i left = _mm512_set1_epi64(from.positions - first);
    __m512i position = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
    RONDO_UNROLL for (std::ptrdiff_t i = 0; i < count; i += 8) {
      const __m256i eight = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(offsets + i));
      const __m512i offset = _mm512_maskz_cvtepi32_epi64(0xff, eight);
      const __mmask8 inside = _mm512_cmpge_epi64_mask(offset, _mm512_setzero_si512()) &
                              _mm512_cmplt_epi64_mask(position, left);
      const __m512i address = _mm512_add_epi64(base, _mm512_maskz_slli_epi64(0xff, offset, 1));
      _mm512_storeu_si512(static_cast<void*>(at + i),
                          _mm512_mask_blend_epi64(inside, nothing, address));
      position = _mm512_add_epi64(position, _mm512_set1_epi64(8));
    }
  }

  const Bfloat16* at[count];
};

constexpr std::uint32_t first_of(std::ptrdiff_t count) noexcept { return (1U << count) - 1U; }

// Eight channels of four pixels, one to a lane.
[[gnu::always_inline]] inline __m512i four_pixels(const Bfloat16* a, const Bfloat16* b,
                                                  const Bfloat16* c, const Bfloat16* d) {
  const auto load = [](const Bfloat16* from) __attribute__((always_inline)) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  };
  __m512i four = _mm512_castsi128_si512(load(a));
  four = _mm512_mask_broadcast_i32x4(four, 0x00f0, load(b));
  four = _mm512_mask_broadcast_i32x4(four, 0x0f00, load(c));
  return _mm512_mask_broadcast_i32x4(four, 0xf000, load(d));
}

[[gnu::always_inline]] inline __m512i four_pixels(const Bfloat16* a, const Bfloat16* b,
                                                  const Bfloat16* c, const Bfloat16* d,
                                                  __mmask8 channels) {
  const auto load = [channels](const Bfloat16* from) __attribute__((always_inline)) {
    return _mm_maskz_loadu_epi16(channels, from);
  };
  __m512i four = _mm512_castsi128_si512(load(a));
  four = _mm512_inserti32x4(four, load(b), 1);
  four = _mm512_inserti32x4(four, load(c), 2);
  return _mm512_inserti32x4(four, load(d), 3);
}

// Lane l of pixels[j] holds pixel 8 l + j; after this a register holds one channel of all pixels.
[[gnu::always_inline]] inline void transpose_lanes(__m512i (&v)[lane_channels]) {
  __m512i t[lane_channels];
  RONDO_UNROLL for (std::ptrdiff_t i = 0; i < 4; ++i) {
    t[2 * i] = _mm512_unpacklo_epi16(v[2 * i], v[2 * i + 1]);      // channels 0 to 3
    t[2 * i + 1] = _mm512_unpackhi_epi16(v[2 * i], v[2 * i + 1]);  // 4 to 7
  }
  RONDO_UNROLL for (std::ptrdiff_t i = 0; i < 2; ++i) {
    v[4 * i] = _mm512_maskz_unpacklo_epi32(all, t[4 * i], t[4 * i + 2]);          // channels 0, 1
    v[4 * i + 1] = _mm512_maskz_unpackhi_epi32(all, t[4 * i], t[4 * i + 2]);      // 2, 3
    v[4 * i + 2] = _mm512_maskz_unpacklo_epi32(all, t[4 * i + 1], t[4 * i + 3]);  // 4, 5
    v[4 * i + 3] = _mm512_maskz_unpackhi_epi32(all, t[4 * i + 1], t[4 * i + 3]);  // 6, 7
  }
  RONDO_UNROLL for (std::ptrdiff_t i = 0; i < 4; ++i) {
    t[2 * i] = _mm512_maskz_unpacklo_epi64(0xff, v[i], v[i + 4]);
    t[2 * i + 1] = _mm512_maskz_unpackhi_epi64(0xff, v[i], v[i + 4]);
  }
  RONDO_UNROLL for (std::ptrdiff_t i = 0; i < lane_channels; ++i) v[i] = t[i];
}

// Eight rows of a tile: channels from `channel` of the pixels on, of which `count` exist.
[[gnu::always_inline]] inline void lay_out_lanes(const Pixels<tile_pixels>& pixels,
                                                 std::ptrdiff_t channel, std::ptrdiff_t count,
                                                 Bfloat16* into) {
  __m512i v[lane_channels];
  const auto at = [&](int pixel)
                      __attribute__((always_inline)) { return pixels.at[pixel] + channel; };
  if (count >= lane_channels) {
    RONDO_UNROLL for (int j = 0; j < lane_channels; ++j) {
      v[j] = four_pixels(at(j), at(8 + j), at(16 + j), at(24 + j));
    }
  } else {
    const auto mask = static_cast<__mmask8>(first_of(count));
    RONDO_UNROLL for (int j = 0; j < lane_channels; ++j) {
      v[j] = four_pixels(at(j), at(8 + j), at(16 + j), at(24 + j), mask);
    }
  }
  transpose_lanes(v);
  RONDO_UNROLL for (int j = 0; j < lane_channels; ++j) {
    _mm512_storeu_si512(into + j * tile_pixels, v[j]);
  }
}

// Sixteen channels of two pixels, value by value in turn.
template <bool whole>
[[gnu::always_inline]] inline __m512i pair(const Bfloat16* first, const Bfloat16* second,
                                           __mmask16 channels, __m512i order) {
  __m512i both;
  if constexpr (whole) {
    const auto* from = reinterpret_cast<const __m256i*>(first);
    both = _mm512_castsi256_si512(_mm256_loadu_si256(from));
    from = reinterpret_cast<const __m256i*>(second);
    both = _mm512_mask_broadcast_i64x4(both, 0xf0, _mm256_loadu_si256(from));
  } else {
    both = _mm512_castsi256_si512(_mm256_maskz_loadu_epi16(channels, first));
    both = _mm512_mask_broadcast_i64x4(both, 0xf0, _mm256_maskz_loadu_epi16(channels, second));
  }
  return _mm512_permutexvar_epi16(order, both);
}

template <bool whole>
[[gnu::always_inline]] inline void lay_out_tile(const Pixels<positions_ahead>& pixels,
                                                __mmask16 channels, Bfloat16* into, Bfloat16* odd) {
  alignas(64) static constexpr std::uint16_t in_turn[32] = {
      0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512i order = _mm512_load_si512(in_turn);
  const auto lay_out_from = [&](int first, Bfloat16* to) __attribute__((always_inline)) {
    RONDO_UNROLL for (int i = 0; i < tile_pixels; i += 2) {
      const Bfloat16* const* const at = pixels.at + first + i;
      _mm512_storeu_si512(to + i * tile_columns, pair<whole>(at[0], at[1], channels, order));
    }
  };
  lay_out_from(0, into);
  if (odd != nullptr) lay_out_from(1, odd);
}

// All eight registers hold 16 rows of 64 bytes.
struct alignas(64) TileConfiguration {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfiguration) == 64);

template <int tile>
[[gnu::always_inline]] inline void clear() {
  asm volatile("tilezero %%tmm%c0" : : "i"(tile));
}

template <int tile>
[[gnu::always_inline]] inline void load(const void* from, std::ptrdiff_t row_bytes) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(row_bytes), "i"(tile) : "memory");
}

template <int tile>
[[gnu::always_inline]] inline void store(void* into, std::ptrdiff_t row_bytes) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)"
               :
               : "r"(into), "r"(row_bytes), "i"(tile)
               : "memory");
}

template <int sum, int a, int b>
[[gnu::always_inline]] inline void multiply_add() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(a), "i"(b));
}

// Which register holds what: the sums, then the runs of rows, then one or two of pairs.
// Instructions name a register by a constant.
template <int row_runs, int pair_runs>
struct Registers {
  static constexpr int sums = row_runs * pair_runs;
  static constexpr int pair_registers = sums + row_runs + 2 <= 8 ? 2 : 1;
  static constexpr int rows(int run) { return sums + run; }
  static constexpr int pairs(int run) { return sums + row_runs + run % pair_registers; }
  static constexpr std::ptrdiff_t row_bytes = 64;  // of all tiles

  template <int i = 0>
  [[gnu::always_inline]] static void clear_sums() {
    if constexpr (i < sums) {
      clear<i>();
      clear_sums<i + 1>();
    }
  }

  template <int run = 0>
  [[gnu::always_inline]] static void load_rows(const Product& product, std::ptrdiff_t tile) {
    if constexpr (run < row_runs) {
      load<rows(run)>(product.rows[run] + tile * tile_values, row_bytes);
      load_rows<run + 1>(product, tile);
    }
  }

  template <int pair_run, int run = 0>
  [[gnu::always_inline]] static void multiply_rows() {
    if constexpr (run < row_runs) {
      multiply_add<pair_run * row_runs + run, rows(run), pairs(pair_run)>();
      multiply_rows<pair_run, run + 1>();
    }
  }

  template <int run = 0>
  [[gnu::always_inline]] static void multiply_pairs(const Product& product, std::ptrdiff_t tile) {
    if constexpr (run < pair_runs) {
      load<pairs(run)>(product.pairs[run] + tile * tile_values, row_bytes);
      multiply_rows<run>();
      multiply_pairs<run + 1>(product, tile);
    }
  }

  template <int i = 0>
  [[gnu::always_inline]] static void store_sums(float* into) {
    if constexpr (i < sums) {
      store<i>(into + i * tile_sums, row_bytes);
      store_sums<i + 1>(into);
    }
  }
};

template <int row_runs, int pair_runs>
void multiply_runs(const Product& product, float* into) {
  using Tiles = Registers<row_runs, pair_runs>;
  Tiles::clear_sums();
  for (std::ptrdiff_t tile = 0; tile < product.tiles; ++tile) {
    Tiles::load_rows(product, tile);
    Tiles::multiply_pairs(product, tile);
  }
  Tiles::store_sums(into);
}

using Multiply = void (*)(const Product& product, float* into);
constexpr Multiply one_of_rows[Product::most_pairs] = {multiply_runs<1, 1>, multiply_runs<1, 2>,
                                                       multiply_runs<1, 3>, multiply_runs<1, 4>,
                                                       multiply_runs<1, 5>};
constexpr Multiply two_of_rows[2] = {multiply_runs<2, 1>, multiply_runs<2, 2>};

// Linux gives the state of tiles to processes that ask for it.
bool ask_for_tiles() noexcept {
  constexpr int request_permission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int tile_data = 18;
  return ::syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

bool has_instructions() noexcept {
  return __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vl") != 0;
}

}  // namespace

void lay_out_rows(const Placement& placement, std::ptrdiff_t first, std::ptrdiff_t channel,
                  Bfloat16* into) noexcept {
  const Pixels<tile_pixels> pixels(placement, first, channel);
  for (std::ptrdiff_t row = 0; row < tile_rows; row += lane_channels) {
    Bfloat16* const to = into + row * tile_pixels;
    const std::ptrdiff_t left = placement.channels - channel - row;
    if (left > 0) {
      lay_out_lanes(pixels, row, left, to);
    } else {
      __builtin_memset(to, 0, lane_channels * tile_pixels * value_bytes);
    }
  }
}

void lay_out_pairs(const Placement& placement, std::ptrdiff_t first, std::ptrdiff_t channel,
                   Bfloat16* into, Bfloat16* odd) noexcept {
  const Pixels<positions_ahead> pixels(placement, first, channel);
  const std::ptrdiff_t left = placement.channels - channel;
  if (left >= tile_columns) return lay_out_tile<true>(pixels, all, into, odd);
  lay_out_tile<false>(pixels, static_cast<__mmask16>(first_of(left)), into, odd);
}

void multiply(const Product& product, float* into) noexcept {
  const Multiply* const by = product.row_runs == 2 ? two_of_rows : one_of_rows;
  by[product.pair_runs - 1](product, into);
}

void enter() noexcept {
  const TileConfiguration configuration;
  asm volatile("ldtilecfg %0" : : "m"(configuration));
}

void leave() noexcept { asm volatile("tilerelease"); }

bool is_usable() noexcept {
  static const bool usable = has_instructions() && ask_for_tiles();
  return usable;
}

}  // namespace rondo::tensor::amx

#pragma once

#include <cstddef>

#include <rondo/tensor/data_type.hpp>

#include "kernels.hpp"

namespace rondo::tensor {

// The innermost loops of our own convolutions, for CPUs with 32 vector registers of 16 floats. A
// tile keeps its results in registers while it walks over the operands. Operands are counted in
// units of four bytes: a float, or two neighbouring values in bf16, whose products with another
// such pair are added by one instruction.

/// The filter taps along a row that tiles are made for.
inline constexpr std::size_t tile_taps = 3;

/// Part of a weight gradient: into[tap][channel][filter] += the sum over images, rows and steps of
/// x * dy. Either operand may be the one that is shifted from tap to tap.
struct WeightTile {
  const void* x = nullptr;   ///< the first channel of the tile, in the first step
  const void* dy = nullptr;  ///< the first filter
  std::ptrdiff_t x_image = 0, x_row = 0, x_step = 0;  ///< distances, in units
  std::ptrdiff_t dy_image = 0, dy_row = 0, dy_step = 0;
  const std::ptrdiff_t* shifts = nullptr;  ///< of each tap, in units
  std::ptrdiff_t images = 0, rows = 0, steps = 0;
  float* into = nullptr;
  std::ptrdiff_t into_tap = 0, into_channel = 0;
  const void* ahead = nullptr;     ///< what is read next; so many cache lines of it are
  std::ptrdiff_t ahead_lines = 0;  ///< prefetched with each row
};

/// A tile of so many channels and filters.
struct WeightTileKind {
  std::ptrdiff_t channels = 0, filters = 0;
  void (*shifted_x)(const WeightTile& tile) = nullptr;
  void (*shifted_dy)(const WeightTile& tile) = nullptr;
};

/// Columns of one row of an image as pairs: pair i is columns first + 2 * stride * i and that plus
/// stride, channel by channel. Columns outside of the image are zero.
struct PairedRow {
  const Bfloat16* row = nullptr;
  std::ptrdiff_t columns = 0, channels = 0;
  std::ptrdiff_t first = 0, stride = 1;
  std::ptrdiff_t pairs = 0;
  void* into = nullptr;
};

/// The tiles of one instruction set and type.
struct ConvolutionTiles {
  WeightTileKind wide;                           ///< 4 channels, 32 filters
  WeightTileKind narrow;                         ///< 8 channels, 16 filters
  void (*pair)(const PairedRow& row) = nullptr;  ///< for bf16
};

// convolution_tiles.cpp, compiled for each.
namespace avx512 {
extern const ConvolutionTiles f32_tiles;
}
namespace avx512_bf16 {
extern const ConvolutionTiles bf16_tiles;
}

/// The tiles that this CPU can run for `type`; null if there are none.
[[nodiscard]] const ConvolutionTiles* convolution_tiles(DataType type) noexcept;

}  // namespace rondo::tensor

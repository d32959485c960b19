#pragma once

#include <cstddef>
#include <cstdint>

#include <rondo/tensor/data_type.hpp>

namespace rondo::tensor::amx {

// The innermost loops of our own weight gradients on AMX. One of its instructions multiplies 16
// rows of 32 values in bf16 by 32 rows of 16, and adds the products to 16 x 16 sums in fp32. Here
// the 32 values belong to 32 pixels; the 16 rows are filters, and the 16 columns channels.

inline constexpr std::ptrdiff_t tile_rows = 16;
inline constexpr std::ptrdiff_t tile_columns = 16;
inline constexpr std::ptrdiff_t tile_pixels = 32;
inline constexpr std::ptrdiff_t tile_values = tile_rows * tile_pixels;  ///< bf16, of an operand
inline constexpr std::ptrdiff_t tile_sums = tile_rows * tile_columns;

/// A position outside of the image, which counts as zero.
inline constexpr std::int32_t no_pixel = -1;

/// How far the table of offsets goes on behind the positions of an image.
inline constexpr std::ptrdiff_t positions_ahead = 40;

/// Pixels of NHWC images to be laid out for tiles.
struct Placement {
  const Bfloat16* images = nullptr;  ///< the first channel of the first image
  std::ptrdiff_t image_values = 0;   ///< from image to image
  std::ptrdiff_t image_positions = 0;
  std::ptrdiff_t positions = 0;  ///< of all images; what lies behind is zero
  /// Which pixel lies at a position, counted in values from the image's first, or no_pixel; of one
  /// image and of positions_ahead that follow.
  const std::int32_t* offsets = nullptr;
  std::ptrdiff_t channels = 0;  ///< of a pixel
};

/// Lays out tile_pixels positions from `first`, for 16 channels from `channel`, as one tile:
/// into[channel][position]. Channels that do not exist are zero.
void lay_out_rows(const Placement& placement, std::ptrdiff_t first, std::ptrdiff_t channel,
                  Bfloat16* into) noexcept;

/// The same as pairs of neighbouring positions, into[position / 2][channel][position % 2]. The
/// pairs of `odd` begin one position later; it may be null.
void lay_out_pairs(const Placement& placement, std::ptrdiff_t first, std::ptrdiff_t channel,
                   Bfloat16* into, Bfloat16* odd) noexcept;

/// The operands of one call: runs of tiles along the pixels. The tiles of a run follow each other;
/// a run of pairs may begin at any pair.
struct Product {
  static constexpr int most_rows = 2, most_pairs = 5;
  int row_runs = 0;   ///< 1 or 2
  int pair_runs = 0;  ///< at most most_pairs, and 2 with two runs of rows
  const Bfloat16* rows[most_rows] = {};
  const Bfloat16* pairs[most_pairs] = {};
  std::ptrdiff_t tiles = 0;  ///< of each run
};

/// The sums of all tiles: into[run of pairs][run of rows][row][column]. Between enter() and
/// leave().
void multiply(const Product& product, float* into) noexcept;

/// Makes the calling thread's tile registers those of multiply(), or gives them back.
void enter() noexcept;
void leave() noexcept;

/// Whether the CPU has what else these loops use, and Linux lets the process use tiles.
[[nodiscard]] bool is_usable() noexcept;

}  // namespace rondo::tensor::amx

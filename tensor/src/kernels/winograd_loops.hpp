#pragma once

#include <cstddef>

namespace rondo::tensor {

// The innermost loops of convolutions by F(4x4, 3x3) of Lavin and Gray, "Fast Algorithms for
// Convolutional Neural Networks" (2016), on NHWC tensors in fp32. A tile is a square of 4 x 4
// outputs. A transformed tile is 36 numbers for each channel, and these lie in 36 planes:
// plane p has a row of channels for each tile. Channels and filters are multiples of 16. Distances
// are counted in floats.

inline constexpr std::ptrdiff_t winograd_tile = 4;     ///< outputs along a side of a tile
inline constexpr std::ptrdiff_t winograd_patch = 6;    ///< inputs along a side
inline constexpr std::ptrdiff_t winograd_planes = 36;  ///< products for each tile

/// A rectangle of one image: as many rows and columns as the tile or the patch has, some of which
/// may lie outside of the image. There, loads give zeros and nothing is stored.
struct WinogradSquare {
  std::ptrdiff_t rows = 0, columns = 0, channels = 0;  ///< of the image
  std::ptrdiff_t top = 0, left = 0;                    ///< of the rectangle; may be negative
  std::ptrdiff_t used = 0;                             ///< channels of it that are wanted
};

/// The planes of one transformed tile: element c of plane p is data[p * plane + c].
struct WinogradTile {
  float* data = nullptr;
  std::ptrdiff_t plane = 0;
};

/// into[row][column] = sum over steps of left[row][step] * right[step][column], for some rows, a
/// multiple of 8, and the columns of one panel; or that added to `into`. The terms are added one by
/// one in the order of the steps, to what was there before.
struct WinogradProduct {
  const float* left = nullptr;
  std::ptrdiff_t left_row = 0, left_step = 0;
  const float* right = nullptr;
  std::ptrdiff_t right_step = 0;
  float* into = nullptr;
  std::ptrdiff_t into_row = 0;
  std::ptrdiff_t rows = 0, steps = 0, columns = 0;
  bool add = false;
};

/// The filters of one panel: from[c * channel + t * tap] begins a row of `columns` weights, one of
/// each filter, for channel c and tap t of the 3 x 3 taps, which are taken backward if `turned`.
/// Plane p of channel c is a row of `columns` floats at into[p * plane + c * columns].
struct WinogradFilters {
  const float* from = nullptr;
  std::ptrdiff_t channel = 0, tap = 0;
  std::ptrdiff_t columns = 0, channels = 0;
  bool turned = false;
  float* into = nullptr;
  std::ptrdiff_t plane = 0;
};

/// The loops of one instruction set. All sets do the same operations in the same order, so the bits
/// are the same.
struct WinogradLoops {
  const char* name;
  std::ptrdiff_t widest_panel;  ///< columns of a product, 16 or this

  /// tile = the transformed patch of x
  void (*transform_input)(const WinogradSquare& square, const float* image, WinogradTile tile);
  /// y's tile = the inverse of the transformed tile, + bias unless null, and ReLU if `rectified`
  void (*write_output)(const WinogradSquare& square, const float* bias, bool rectified,
                       WinogradTile tile, float* image);
  /// tile = the transformed tile of dy
  void (*transform_gradient)(const WinogradSquare& square, const float* image, WinogradTile tile);
  void (*transform_filters)(const WinogradFilters& task);
  /// into[tap * tap_distance + i] = the gradient of `count` weights whose planes begin at `tile`
  void (*write_weights)(WinogradTile tile, std::ptrdiff_t count, float* into,
                        std::ptrdiff_t tap_distance);
  void (*multiply)(const WinogradProduct& task);
};

// winograd_loops.cpp, compiled for each.
namespace baseline {
extern const WinogradLoops winograd_loops;
}
namespace avx2 {
extern const WinogradLoops winograd_loops;
}
namespace avx512 {
extern const WinogradLoops winograd_loops;
}

}  // namespace rondo::tensor

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace rondo::train {

// The two passes of resample(). Pixels and weights are floats that hold multiples of 2^-16 of at
// most 256: products and sums of them are exact in any order, so that all variants agree bit for
// bit. Weights that belong to one new pixel have the sum 1.
struct ResampleKernels {
  // From a row of old pixels to a row of new ones.
  struct Columns {
    const std::uint8_t* in = nullptr;
    std::size_t in_values = 0;
    float* widened = nullptr;                // scratch for in_values + the longest tail + 4
    const std::uint32_t* offsets = nullptr;  // of the first value that has a part in a new pixel
    const float* weights = nullptr;          // `taps` for each new pixel
    std::size_t taps = 0;
    std::size_t pixels = 0;
    std::size_t channels = 0;  // 1 to 4
    float* out = nullptr;      // pixels * channels, + 4 that are overwritten
  };
  void (*columns)(const Columns& pass) = nullptr;

  // From some such rows to a row of the image.
  struct Rows {
    const float* const* in = nullptr;  // `taps` rows; whole blocks of row_block floats
    const float* weights = nullptr;
    std::size_t taps = 0;
    std::size_t values = 0;
    std::uint8_t* out = nullptr;
  };
  void (*rows)(const Rows& pass) = nullptr;
};

// The length of a row of floats in memory is a multiple of this.
inline constexpr std::size_t row_block = 32;

namespace baseline {
extern const ResampleKernels resample_kernels;
}
namespace avx2 {
extern const ResampleKernels resample_kernels;
}
namespace avx512 {
extern const ResampleKernels resample_kernels;
}

// The variants that this CPU can run; the last one is the fastest.
[[nodiscard]] std::span<const ResampleKernels* const> resample_kernels();

}  // namespace rondo::train

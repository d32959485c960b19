#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <rondo/tensor/convolution.hpp>

#include "kernels/kernels.hpp"
#include "kernels/winograd_loops.hpp"
#include "own_weight_gradient.hpp"

namespace rondo::tensor {

/// The loops for that instruction set, and the fastest ones that this CPU can run. Null if it
/// cannot run them, or fuses no multiplication with an addition: then they are slow.
[[nodiscard]] const WinogradLoops* winograd_loops(InstructionSet set) noexcept;
[[nodiscard]] const WinogradLoops* winograd_loops() noexcept;

/// The squares of 4 x 4 outputs that a convolution of 3 x 3 filters and stride 1 is cut into, and
/// how many of them are computed at once, so that the planes of these stay in the cache. The spec
/// has the channels of what is transformed, and the padding.
class WinogradTiling {
 public:
  /// At least `least` tiles at once, a multiple of 8, where there are so many.
  WinogradTiling(const ConvolutionSpec& spec, std::int64_t least);

  [[nodiscard]] std::int64_t tiles() const noexcept { return tiles_; }
  [[nodiscard]] std::int64_t at_once() const noexcept { return at_once_; }

  /// The patch of x that a tile is computed from, and the image that has it.
  [[nodiscard]] WinogradSquare patch(std::int64_t tile) const noexcept;
  /// The tile of y, or of dy.
  [[nodiscard]] WinogradSquare output(std::int64_t tile) const noexcept;
  [[nodiscard]] std::int64_t image_of(std::int64_t tile) const noexcept {
    return tile / (down_ * across_);
  }
  [[nodiscard]] std::int64_t input_image() const noexcept {
    return spec_.input.h * spec_.input.w * spec_.input.c;
  }
  [[nodiscard]] std::int64_t output_image() const noexcept {
    return output_.h * output_.w * output_.c;
  }

 private:
  ConvolutionSpec spec_;
  Shape output_;
  std::int64_t down_, across_, tiles_, at_once_;
};

/// The planes of some tiles, in memory that somebody else owns. Rows and planes are a cache line
/// apart from powers of two, so that they do not meet in the same lines of the cache.
struct WinogradPlanes {
  WinogradPlanes(std::int64_t rows, std::int64_t channels) noexcept;
  [[nodiscard]] std::int64_t size() const noexcept { return winograd_planes * plane; }
  [[nodiscard]] WinogradTile at(float* data, std::int64_t row_index) const noexcept {
    return {data + row_index * row, plane};
  }

  std::int64_t row, plane;  ///< distances, in floats
};

/// Filters as WinogradConvolution reads them: for each plane and panel of filters a matrix with a
/// row for each channel.
struct WinogradFilterLayout {
  const WinogradLoops* loops = nullptr;    ///< which decide how wide a panel is
  std::int64_t filters = 0, channels = 0;  ///< of the convolution that reads them
  bool mirrored = false;  ///< from the weights of one with both exchanged, turned by half a turn

  [[nodiscard]] std::size_t bytes() const noexcept {
    return static_cast<std::size_t>(winograd_planes * filters * channels) * sizeof(float);
  }
  /// From [F,C,3,3] of the layer, on the engine's team.
  void transform(const Engine::Impl& engine, const float* weights, float* into) const;
  friend bool operator==(const WinogradFilterLayout&, const WinogradFilterLayout&) = default;
};

/// A convolution of 3 x 3 filters and stride 1, with bias and ReLU, or the gradient of its input,
/// which is a convolution of dy, in fp32. It takes 36 multiplications for each 144 of the
/// definition. The bits of an output depend on its patch and the filters alone: not on the number
/// of threads or images, nor on the instruction set.
class WinogradConvolution {
 public:
  /// Can the loops of this CPU compute it, and in less time than oneDNN's kernels?
  [[nodiscard]] static bool is_faster(const ConvolutionSpec& spec) noexcept;

  /// `threads`: of the engine. With `mirrored` filters it computes the gradient of an input.
  WinogradConvolution(const ConvolutionSpec& spec, const WinogradLoops& loops, int threads,
                      bool mirrored);

  [[nodiscard]] std::string name() const;
  [[nodiscard]] const WinogradFilterLayout& filters() const noexcept { return filters_; }
  /// Bytes that run() uses of the engine's scratchpad.
  [[nodiscard]] std::size_t scratchpad_bytes() const noexcept;

  /// `x` and `y` are dense; `filters` have WinogradFilterLayout; `bias` may be null.
  void run(const Engine::Impl& engine, const float* x, const float* filters, const float* bias,
           float* y) const;

 private:
  void run_tiles(std::int64_t first, std::int64_t last, const float* x, const float* filters,
                 const float* bias, float* y, float* scratchpad) const;

  ConvolutionSpec spec_;
  const WinogradLoops* loops_;
  int threads_;
  WinogradFilterLayout filters_;
  WinogradTiling tiling_;
  WinogradPlanes inputs_;
  WinogradPlanes outputs_;
};

/// The weight gradient of such a convolution.
class WinogradWeightGradient final : public OwnWeightGradient {
 public:
  WinogradWeightGradient(const ConvolutionSpec& spec, const WinogradLoops& loops, int threads);

  [[nodiscard]] std::size_t scratchpad_bytes() const noexcept override;
  [[nodiscard]] std::string name() const override;
  [[nodiscard]] dnnl::memory::format_tag layout() const noexcept override {
    return dnnl::memory::format_tag::hwio;
  }
  void run(const Engine::Impl& engine, const void* x, const void* dy, float* into,
           float* bias_gradient) const override;

 private:
  void transform(std::int64_t begin, const Cut& share, const float* x, const float* dy,
                 float* inputs, float* gradients) const;
  void add_bias_gradient(std::int64_t tiles, const float* gradients, double* sums) const;
  void multiply(std::int64_t product, std::int64_t tiles, bool add, const float* inputs,
                const float* gradients, float* sums) const;

  ConvolutionSpec spec_;
  const WinogradLoops* loops_;
  WinogradTiling tiling_;
  WinogradPlanes inputs_;
  WinogradPlanes gradients_;
  WinogradPlanes sums_;
};

}  // namespace rondo::tensor

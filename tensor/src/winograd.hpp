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
  WinogradTiling(const ConvolutionSpec& spec, std::int64_t filters_at_once, std::int64_t least);

  [[nodiscard]] std::int64_t tiles() const noexcept { return tiles_; }
  [[nodiscard]] std::int64_t at_once() const noexcept { return at_once_; }

  /// The patch of x that a tile is computed from, and the image that has it.
  [[nodiscard]] WinogradSquare patch(std::int64_t tile) const noexcept;
  /// The tile of y, or of dy, in some of its channels.
  [[nodiscard]] WinogradSquare output(std::int64_t tile, std::int64_t filters) const noexcept;
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

/// A convolution of 3 x 3 filters and stride 1, with bias and ReLU, or the gradient of its input,
/// which is a convolution of dy, in fp32. It takes 36 multiplications for each 144 of the
/// definition. The bits of an output depend on its patch and the filters alone: not on the number
/// of threads or images, nor on the instruction set.
///
/// Filters are transformed by every run, some at a time, into the scratchpad. Kept from update to
/// update they would take four times the memory of the weights, and would have left the cache
/// before they are read.
class WinogradConvolution {
 public:
  /// Can the loops of this CPU compute it, and in less time than oneDNN's kernels?
  [[nodiscard]] static bool is_faster(const ConvolutionSpec& spec) noexcept;

  /// `threads`: of the engine. `mirrored`: computes the gradient of an input; then the layer's
  /// filters are the channels of `spec`.
  WinogradConvolution(const ConvolutionSpec& spec, const WinogradLoops& loops, int threads,
                      bool mirrored);

  [[nodiscard]] std::string name() const;
  /// The layer's weights as run() reads them: those of each tap are a matrix with a row for each
  /// channel of `spec`.
  [[nodiscard]] dnnl::memory::desc weights_layout() const;
  /// Bytes that run() uses of the engine's scratchpad.
  [[nodiscard]] std::size_t scratchpad_bytes() const noexcept;

  /// `x` and `y` are dense; `bias` may be null.
  void run(const Engine::Impl& engine, const float* x, const float* weights, const float* bias,
           float* y) const;

 private:
  /// `filters`: which ones; `transformed`: they.
  void transform_filters(const Cut& filters, const float* weights, const Cut& channels,
                         float* transformed) const;
  void run_tiles(const Cut& filters, const Cut& tiles, const float* x, const float* transformed,
                 const float* bias, float* y, float* scratchpad) const;

  ConvolutionSpec spec_;
  const WinogradLoops* loops_;
  int threads_;
  bool mirrored_;
  std::int64_t filters_at_once_;
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
  /// The gradient of some filters.
  void run_filters(const Engine::Impl& engine, const Cut& filters, const float* x, const float* dy,
                   float* into, float* bias_gradient) const;
  void transform(const Cut& filters, std::int64_t begin, const Cut& share, const float* x,
                 const float* dy, float* inputs, float* gradients) const;
  void multiply(const Cut& filters, const Cut& products, std::int64_t tiles, bool add,
                const float* inputs, const float* gradients, float* sums) const;
  void add_bias_gradient(std::int64_t filters, std::int64_t tiles, const float* gradients,
                         double* sums) const;

  ConvolutionSpec spec_;
  const WinogradLoops* loops_;
  std::int64_t filters_at_once_;
  WinogradTiling tiling_;
  WinogradPlanes inputs_;
  WinogradPlanes gradients_;
  WinogradPlanes sums_;
};

}  // namespace rondo::tensor

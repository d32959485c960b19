#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <rondo/tensor/convolution.hpp>

#include "engine_impl.hpp"
#include "kernels/amx_tiles.hpp"
#include "own_weight_gradient.hpp"

namespace rondo::tensor {

/// The weight gradient of a convolution in bf16 on AMX: a product of matrices for each tap of the
/// filters.
class AmxWeightGradient final : public OwnWeightGradient {
 public:
  /// Empty where the CPU or the spec leaves the work to others.
  [[nodiscard]] static std::shared_ptr<const AmxWeightGradient> choose(const ConvolutionSpec& spec);

  explicit AmxWeightGradient(const ConvolutionSpec& spec);

  [[nodiscard]] std::size_t scratchpad_bytes() const noexcept override;
  [[nodiscard]] std::string name() const override { return "rondo:amx_bf16"; }
  [[nodiscard]] dnnl::memory::format_tag layout() const noexcept override {
    return dnnl::memory::format_tag::ohwi;
  }
  void run(const Engine::Impl& engine, const void* x, const void* dy, float* into,
           float* bias_gradient) const override;

 private:
  /// One direction: rows, or columns. With a stride the rows of x are dealt out to planes in turn,
  /// so that within a plane a tap reads neighbouring rows for neighbouring rows of dy. Coordinate u
  /// of plane k is row stride * u + k - padding of x.
  struct Axis {
    Axis(std::int64_t rows_of_x, std::int64_t rows_of_dy, std::int64_t kernel, std::int64_t step,
         std::int64_t before);
    /// The row at a coordinate; no_pixel in the padding.
    [[nodiscard]] std::int64_t at(std::int64_t plane, std::int64_t coordinate) const noexcept;

    std::int64_t input, output, stride, padding;
    std::int64_t planes;  ///< that taps read
    std::int64_t reach;   ///< the furthest tap, in coordinates
    std::int64_t period;  ///< coordinates from one row, or image, to the next
  };
  /// Images that are computed at once. Their operands fit the cache.
  struct Slab {
    std::int64_t image = 0, images = 0;
    std::int64_t tiles = 0;    ///< along the pixels
    std::int64_t x_tiles = 0;  ///< of x: the furthest tap reads beyond
  };
  /// Tiles of x that follow each other, which one tap multiplies with dy for some channels.
  struct Run {
    std::int64_t tap = 0, channels = 0;  ///< in blocks
    std::int64_t plane = 0, offset = 0;  ///< of its first position
  };
  /// The operands of a slab in the scratchpad, see kernels/amx_tiles.hpp.
  struct Operands {
    Bfloat16* rows = nullptr;   ///< dy: [block of filters][tile]
    Bfloat16* pairs = nullptr;  ///< x: [plane][block of channels][copy][tile]
  };

  [[nodiscard]] bool fits() const noexcept;
  void make_tables();
  [[nodiscard]] std::int32_t offset_of_x(std::int64_t plane, std::int64_t position) const;
  [[nodiscard]] std::int32_t offset_of_dy(std::int64_t position) const;
  [[nodiscard]] Run run_of(std::int64_t tap, std::int64_t channels) const;
  [[nodiscard]] Slab slab_of(std::int64_t image, std::int64_t images) const noexcept;
  [[nodiscard]] std::size_t bytes_of(const Slab& slab) const noexcept;
  [[nodiscard]] amx::Placement placement(const Slab& slab, const Bfloat16* tensor,
                                         const Shape& shape,
                                         const std::int32_t* offsets) const noexcept;
  [[nodiscard]] std::int64_t first_tile(const Slab& slab, std::int64_t plane, std::int64_t channels,
                                        std::int64_t copy) const noexcept;
  void compute(const Slab& slab, const Engine::Impl& engine, const Bfloat16* x, const Bfloat16* dy,
               float* into) const;
  void lay_out_dy(const Slab& slab, const Bfloat16* dy, const Operands& operands, Cut tiles) const;
  void lay_out_x(const Slab& slab, const Bfloat16* x, const Operands& operands, Cut tiles) const;
  void multiply(const Slab& slab, const Operands& operands, float* into, int part, int parts) const;
  void multiply_runs(const Slab& slab, const Operands& operands, std::int64_t filters, Cut runs,
                     float* into) const;
  void add(const float* sums, const Run& run, std::int64_t filters, float* into) const;

  ConvolutionSpec spec_;
  Axis down_, across_;
  std::int64_t planes_;           ///< of x
  std::int64_t copies_;           ///< of x: pairs from even positions on, and from odd ones
  std::int64_t channel_blocks_;   ///< of a tile's columns
  std::int64_t filter_blocks_;    ///< of a tile's rows
  std::int64_t image_positions_;  ///< within one plane
  std::int64_t table_length_;     ///< of one plane's offsets
  std::int64_t slab_images_;
  std::vector<std::int32_t> x_offsets_;
  std::vector<std::int32_t> dy_offsets_;
  std::vector<Run> runs_;
};

}  // namespace rondo::tensor

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <rondo/tensor/convolution.hpp>

#include "kernels/convolution_tiles.hpp"
#include "own_weight_gradient.hpp"

namespace rondo::tensor {

/// The weight gradient of a convolution by vector instructions: with filters of three columns where
/// these are faster than oneDNN's kernel, and any where that is broken.
class DirectWeightGradient final : public OwnWeightGradient {
 public:
  /// Empty where the CPU or the spec leaves the work to oneDNN.
  [[nodiscard]] static std::shared_ptr<const DirectWeightGradient> choose(
      const ConvolutionSpec& spec);

  /// In fp32, by plain loops; slow.
  explicit DirectWeightGradient(const ConvolutionSpec& spec)
      : spec_(spec), output_(spec.output()) {}
  /// With filters of three columns.
  DirectWeightGradient(const ConvolutionSpec& spec, const ConvolutionTiles& tiles);

  [[nodiscard]] std::size_t scratchpad_bytes() const noexcept override;
  [[nodiscard]] std::string name() const override;
  [[nodiscard]] dnnl::memory::format_tag layout() const noexcept override {
    return dnnl::memory::format_tag::hwio;
  }
  void run(const Engine::Impl& engine, const void* x, const void* dy, float* into,
           float* bias_gradient) const override;

 private:
  static constexpr std::size_t taps = tile_taps;

  /// How the rows of x or dy lie while tiles read them, in units of four bytes.
  struct Operand {
    std::int64_t channels = 0;
    std::int64_t columns = 0;  ///< of the tensor
    std::int64_t rows = 0;     ///< of one image of the tensor
    bool packed = false;       ///< else tiles read the tensor itself
    std::int64_t first = 0;    ///< column where a packed row begins; may lie outside
    std::int64_t stride = 1;   ///< between columns of neighbouring steps
    std::int64_t copies = 1;   ///< of a row, each with another first column
    std::int64_t length = 0;   ///< steps in one copy
    [[nodiscard]] std::int64_t row_units() const noexcept { return copies * length * channels; }
  };
  /// What is computed at once: whole images, or rows of one. Its operands fit the cache.
  struct Slab {
    std::int64_t image = 0, images = 0;
    std::int64_t row = 0, rows = 0;  ///< of dy
    [[nodiscard]] std::int64_t last_row() const noexcept { return row + rows; }
  };
  struct Rows {
    std::int64_t first = 0, count = 0;
  };
  /// The data that the next slab will read, so that they are fetched while tiles compute.
  struct Ahead {
    struct Share {
      const std::byte* from = nullptr;
      std::int64_t lines = 0;  ///< of the cache
    };
    /// Every other tile fetches a part of x, the others parts of dy.
    [[nodiscard]] Share of_tile(std::int64_t tile, std::int64_t tiles) const noexcept;

    Share x, dy;
  };

  void run_plainly(const Engine::Impl& engine, const float* x, const float* dy, float* into) const;
  void sum_line(std::int64_t line, const float* x, const float* dy, float* sums) const;
  void shift(Operand& operand, std::int64_t lowest, std::int64_t stride, bool mirrored);
  [[nodiscard]] Rows rows_of_x(const Slab& slab) const noexcept;
  void compute(const Slab& slab, const Engine::Impl& engine, const void* x, const void* dy,
               float* into) const;
  void pack(const Operand& operand, const Slab& slab, Rows rows, const void* from, void* into,
            int part, int parts) const;
  void pack_row(const Operand& operand, const void* row, void* into) const;
  [[nodiscard]] Ahead what_follows(const Slab& slab, const void* x, const void* dy) const noexcept;
  void run_tile(const Slab& slab, const WeightTile& whole, std::int64_t index,
                Ahead::Share ahead) const;

  ConvolutionSpec spec_;
  Shape output_;
  WeightTileKind tile_ = {};
  void (*run_tile_)(const WeightTile& tile) = nullptr;  ///< none: plainly
  void (*pair_)(const PairedRow& row) = nullptr;
  Operand x_;
  Operand dy_;
  std::array<std::ptrdiff_t, taps> shifts_ = {};
  std::int64_t steps_ = 0;
  std::int64_t slab_images_ = 0;
  std::int64_t slab_rows_ = 0;
};

}  // namespace rondo::tensor

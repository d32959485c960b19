#pragma once

#include <cstdint>
#include <vector>

#include <rondo/train/export.hpp>
#include <rondo/train/model.hpp>
#include <rondo/train/partition.hpp>

namespace rondo::train {

// The data that a rank needs from others where images are split in space. Output o of a window
// reads the inputs [o * stride - before, o * stride - before + kernel), and inputs outside of the
// image are padding. A part may be thinner than the halo, which then comes from more ranks than the
// neighbours.
//
// One dimension comes first, then partitions of x[N,H,W,C] and y[N,H',W',F].

/// A convolution or pooling along one dimension.
struct Window {
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t before = 0;  ///< padding in front of index 0
  std::int64_t after = 0;   ///< padding behind the last index

  /// How many outputs `inputs` give; 0 if the kernel does not fit.
  [[nodiscard]] constexpr std::int64_t outputs(std::int64_t inputs) const noexcept {
    const std::int64_t room = inputs + before + after - kernel;
    return room < 0 ? 0 : room / stride + 1;
  }
  [[nodiscard]] constexpr bool operator==(const Window&) const noexcept = default;
};

/// A range of inputs or outputs, and the padding that a kernel needs to compute from this range
/// alone.
struct Reach {
  Range range = {};
  std::int64_t before = 0;
  std::int64_t after = 0;

  [[nodiscard]] constexpr bool operator==(const Reach&) const noexcept = default;
};

/// The inputs that `outputs` read, of [0, extent); `before` and `after` are the padding that
/// remains at the image's borders, so range + before + after = (outputs - 1) * stride + kernel.
/// Inputs that a stride longer than the kernel skips are in the stretch where they lie between.
/// No outputs need nothing.
[[nodiscard]] RONDO_TRAIN_API Reach inputs_read(const Window& window, Range outputs,
                                                std::int64_t extent) noexcept;

/// The outputs, of [0, extent), whose gradients meet in those of `inputs`. A backward-data kernel
/// that runs on them alone covers `before` inputs in front of inputs.first and `after` behind
/// inputs.last, whose sums are not ours to use; a negative number counts inputs that it does not
/// reach, whose gradients are 0. No inputs need nothing; if `range` is empty all gradients are 0.
[[nodiscard]] RONDO_TRAIN_API Reach outputs_fed(const Window& window, Range inputs,
                                                std::int64_t extent) noexcept;

/// The part of `outputs` that reads only `held`, of inputs [0, extent), and padding: a rank can
/// compute it while the halo travels. It is one range; the other outputs lie before and after it.
[[nodiscard]] RONDO_TRAIN_API Range inner_outputs(const Window& window, Range outputs, Range held,
                                                  std::int64_t extent) noexcept;

/// A window in both directions of an image.
struct Windows {
  Window h = {};
  Window w = {};

  [[nodiscard]] constexpr bool operator==(const Windows&) const noexcept = default;
};

[[nodiscard]] RONDO_TRAIN_API Windows windows_of(const ConvolutionLayer& layer) noexcept;
[[nodiscard]] RONDO_TRAIN_API Windows windows_of(const PoolingLayer& layer) noexcept;

/// The part that one rank computes under a spatial split, and the part that it needs for it.
struct Halo {
  Box own = {};     ///< what it computes: of y forward, of dx backward
  Box needed = {};  ///< what it reads: of x forward, of dy backward; own part and halo
  Box inner = {};   ///< of `own`, forward: what needs no halo
  Reach h = {};     ///< with the paddings of inputs_read() or outputs_fed()
  Reach w = {};
};

/// `x` and `y` are the partitions of a layer's input and output. n and c of `needed` are those of
/// the rank's part of what it reads, which no window widens. Throws std::invalid_argument unless
/// both are over the same ranks, the extents fit the windows, and `rank` has the same samples of
/// both.
[[nodiscard]] RONDO_TRAIN_API Halo forward_halo(const Partition& x, const Partition& y,
                                                const Windows& windows, int rank);
[[nodiscard]] RONDO_TRAIN_API Halo backward_halo(const Partition& x, const Partition& y,
                                                 const Windows& windows, int rank);

/// The `needed` boxes of all ranks. redistribution(x, forward_needs(...), rank) is the exchange
/// before forward, redistribution(y, backward_needs(...), rank) that of dy before backward-data.
/// Corners included: what lies diagonally comes from the rank that holds it, in one step.
[[nodiscard]] RONDO_TRAIN_API std::vector<Box> forward_needs(const Partition& x, const Partition& y,
                                                             const Windows& windows);
[[nodiscard]] RONDO_TRAIN_API std::vector<Box> backward_needs(const Partition& x,
                                                              const Partition& y,
                                                              const Windows& windows);

}  // namespace rondo::train

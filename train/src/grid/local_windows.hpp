#pragma once

#include <cstdint>
#include <span>

#include <rondo/train/halo.hpp>
#include <rondo/train/redistribution.hpp>

namespace rondo::train {

/// One dimension of a kernel that runs on a part of an image: the inputs that it is given, and
/// the padding around them. Never negative.
struct LocalWindow {
  Range inputs = {};
  std::int64_t before = 0;
  std::int64_t after = 0;
};

/// Both dimensions.
struct LocalWindows {
  LocalWindow h = {};
  LocalWindow w = {};

  /// `box` with the inputs' rows and columns.
  [[nodiscard]] Box inputs_of(Box box) const noexcept {
    box.h = h.inputs;
    box.w = w.inputs;
    return box;
  }
};

/// The spec of a kernel, with the paddings of `windows`.
template <typename Spec>
[[nodiscard]] Spec within(Spec spec, const LocalWindows& windows) {
  spec.pad_top = windows.h.before;
  spec.pad_bottom = windows.h.after;
  spec.pad_left = windows.w.before;
  spec.pad_right = windows.w.after;
  return spec;
}

/// The windows of a forward kernel that computes what `halo` says and whose rank holds `held` of
/// the input. It gets what it needs. Where a stride merely skips the rest of what is held, it gets
/// that, too: so it can often read the rank's own part in place.
[[nodiscard]] LocalWindows forward_windows(const Halo& halo, const Windows& windows,
                                           const Box& held) noexcept;

/// The windows of a backward-data kernel: it computes the gradients of all of the rank's inputs,
/// except inputs in front or behind that no output reaches: their gradients are zero. `halo` is a
/// backward_halo() with something needed.
[[nodiscard]] LocalWindows backward_windows(const Halo& halo, const Windows& windows) noexcept;

/// The way back of a halo: rank r has computed sums for all of `computed[r]`, and they go to the
/// ranks that hold the elements by `home`. A rank must add what arrives to what it keeps; receives
/// are in the order of peers, so sums have the same bits every time.
///
/// Where several ranks hold a block, they have computed the same sums, and the i-th holder of one
/// block sends to the i-th of another. Throws std::invalid_argument unless there is a box for each
/// rank.
[[nodiscard]] Redistribution halo_return(const Partition& home, std::span<const Box> computed,
                                         int rank);

}  // namespace rondo::train

// The data that a rank needs from others where images are split in space: first the arithmetic of
// windows along one dimension, then boxes of whole partitions, then the windows of a kernel that
// runs on a part of an image. Intervals are half open; indices of padding are negative, or the
// extent and beyond.

#include <algorithm>
#include <stdexcept>
#include <string>

#include <rondo/train/halo.hpp>

#include "grid/local_windows.hpp"

namespace rondo::train {
namespace {

constexpr std::int64_t floor_quotient(std::int64_t a, std::int64_t b) noexcept {
  return a >= 0 ? a / b : -((-a + b - 1) / b);
}

constexpr std::int64_t ceiling_quotient(std::int64_t a, std::int64_t b) noexcept {
  return -floor_quotient(-a, b);
}

/// All that the windows of `outputs` cover, padding included.
constexpr Range span_of(const Window& window, Range outputs) noexcept {
  if (outputs.empty()) return {};
  return {outputs.first * window.stride - window.before,
          (outputs.last - 1) * window.stride - window.before + window.kernel};
}

/// Clamped to [0, extent).
constexpr Range clamped(Range range, std::int64_t extent) noexcept {
  const std::int64_t first = std::clamp<std::int64_t>(range.first, 0, extent);
  return {first, std::clamp(range.last, first, extent)};
}

void check(const Partition& x, const Partition& y, const Windows& windows) {
  if (x.ranks() != y.ranks()) {
    throw std::invalid_argument("halo: input and output lie on different ranks");
  }
  if (windows.h.outputs(x.extents().h) != y.extents().h ||
      windows.w.outputs(x.extents().w) != y.extents().w) {
    throw std::invalid_argument("halo: the output's rows or columns are not those of the windows");
  }
}

/// A rank computes on the samples that it holds.
void expect_same_samples(const Box& x, const Box& y, int rank) {
  if (x.n == y.n) return;
  throw std::invalid_argument("halo: rank " + std::to_string(rank) +
                              " holds input and output of different samples");
}

template <class HaloOf>
std::vector<Box> needs_of(const Partition& x, HaloOf halo_of) {
  std::vector<Box> needs;
  for (int rank = 0; rank < x.ranks(); ++rank) needs.push_back(halo_of(rank).needed);
  return needs;
}

/// Up to stride - 1 inputs behind the last window make no output more.
LocalWindow forward_window(const Reach& reach, const Window& window, Range held) noexcept {
  const std::int64_t skipped = held.last - reach.range.last;
  const bool all = !reach.range.empty() && reach.range.first == held.first && 0 < skipped &&
                   skipped < window.stride;
  return {all ? held : reach.range, reach.before, reach.after};
}

LocalWindow backward_window(const Reach& reach, const Window& window, Range own) noexcept {
  LocalWindow local{own, std::max<std::int64_t>(reach.before, 0),
                    std::max<std::int64_t>(reach.after, 0)};
  local.inputs.first += local.before - reach.before;
  const std::int64_t skipped = local.after - reach.after;
  if (skipped >= window.stride) local.inputs.last -= skipped;
  return local;
}

}  // namespace

Reach inputs_read(const Window& window, Range outputs, std::int64_t extent) noexcept {
  const Range covered = span_of(window, outputs);
  // A window may lie in the padding altogether, so neither padding is more than is covered.
  const std::int64_t before =
      std::min<std::int64_t>(covered.last, 0) - std::min<std::int64_t>(covered.first, 0);
  const std::int64_t after = std::max(covered.last, extent) - std::max(covered.first, extent);
  return {clamped(covered, extent), before, after};
}

Reach outputs_fed(const Window& window, Range inputs, std::int64_t extent) noexcept {
  if (inputs.empty()) return {};
  // The first output whose window ends behind inputs.first, the last that begins before
  // inputs.last.
  const Range feeding = {
      ceiling_quotient(inputs.first + window.before - window.kernel + 1, window.stride),
      floor_quotient(inputs.last - 1 + window.before, window.stride) + 1};
  const Range outputs = clamped(feeding, extent);
  if (outputs.empty()) return {outputs, 0, 0};
  const Range covered = span_of(window, outputs);
  return {outputs, inputs.first - covered.first, covered.last - inputs.last};
}

// Outputs whose windows read only what the rank holds. At the border of the image padding is held
// by everyone, so only a cut inside of it takes rows away.
Range inner_outputs(const Window& window, Range outputs, Range held, std::int64_t extent) noexcept {
  Range inner = outputs;
  if (held.first > 0) {
    inner.first =
        std::max(inner.first, ceiling_quotient(held.first + window.before, window.stride));
  }
  if (held.last < extent) {
    const std::int64_t last_start = held.last - window.kernel + window.before;
    inner.last = std::min(inner.last, floor_quotient(last_start, window.stride) + 1);
  }
  return intersection(outputs, {inner.first, std::max(inner.first, inner.last)});
}

// A rank computes the outputs that it holds, and reads the inputs that their windows cover.
Halo forward_halo(const Partition& x, const Partition& y, const Windows& windows, int rank) {
  check(x, y, windows);
  const Box held = x.box_of(rank);
  const Box own = y.box_of(rank);
  expect_same_samples(held, own, rank);
  const tensor::Shape& extents = x.extents();
  const Reach h = inputs_read(windows.h, own.h, extents.h);
  const Reach w = inputs_read(windows.w, own.w, extents.w);
  const Box inner = {own.n, inner_outputs(windows.h, own.h, held.h, extents.h),
                     inner_outputs(windows.w, own.w, held.w, extents.w), own.c};
  return {own, {held.n, h.range, w.range, held.c}, inner, h, w};
}

// A rank computes the gradients of the inputs that it holds, from all outputs that have read them.
Halo backward_halo(const Partition& x, const Partition& y, const Windows& windows, int rank) {
  check(x, y, windows);
  const Box held = y.box_of(rank);
  const Box own = x.box_of(rank);
  expect_same_samples(own, held, rank);
  const tensor::Shape& extents = y.extents();
  const Reach h = outputs_fed(windows.h, own.h, extents.h);
  const Reach w = outputs_fed(windows.w, own.w, extents.w);
  return {own, {held.n, h.range, w.range, held.c}, {}, h, w};
}

std::vector<Box> forward_needs(const Partition& x, const Partition& y, const Windows& windows) {
  return needs_of(x, [&](int rank) { return forward_halo(x, y, windows, rank); });
}

std::vector<Box> backward_needs(const Partition& x, const Partition& y, const Windows& windows) {
  return needs_of(x, [&](int rank) { return backward_halo(x, y, windows, rank); });
}

LocalWindows forward_windows(const Halo& halo, const Windows& windows, const Box& held) noexcept {
  return {forward_window(halo.h, windows.h, held.h), forward_window(halo.w, windows.w, held.w)};
}

LocalWindows backward_windows(const Halo& halo, const Windows& windows) noexcept {
  return {backward_window(halo.h, windows.h, halo.own.h),
          backward_window(halo.w, windows.w, halo.own.w)};
}

}  // namespace rondo::train

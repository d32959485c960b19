#include <stdexcept>
#include <string>

#include <rondo/train/halo.hpp>

namespace rondo::train {
namespace {

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

Window window_of(std::int64_t kernel, std::int64_t stride, std::int64_t padding) noexcept {
  return {.kernel = kernel, .stride = stride, .before = padding, .after = padding};
}

}  // namespace

Windows windows_of(const ConvolutionLayer& layer) noexcept {
  const Window window = window_of(layer.kernel, layer.stride, layer.padding);
  return {window, window};
}

Windows windows_of(const PoolingLayer& layer) noexcept {
  const Window window = window_of(layer.window, layer.stride, layer.padding);
  return {window, window};
}

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

}  // namespace rondo::train

#include "grid/box_copy.hpp"

#include <algorithm>
#include <cstdint>

namespace rondo::train {
namespace {

/// Where element (n, h, w, c) of the whole array lies in memory that holds `held`.
std::int64_t place_of(const Box& held, std::int64_t n, std::int64_t h, std::int64_t w,
                      std::int64_t c) {
  const tensor::Shape shape = held.shape();
  return (((n - held.n.first) * shape.h + h - held.h.first) * shape.w + w - held.w.first) *
             shape.c +
         c - held.c.first;
}

/// Calls move(from, into, count) for runs as long as both memories are dense: a pixel's channels,
/// or a row's pixels, or an image's rows, or all images.
template <typename Move>
void for_each_run(const Box& box, const BoxView<const float>& from, const BoxView<float>& into,
                  Move move) {
  if (box.empty()) return;
  const bool pixels = box.c == from.box.c && box.c == into.box.c;
  const bool rows = pixels && box.w == from.box.w && box.w == into.box.w;
  const bool images = rows && box.h == from.box.h && box.h == into.box.h;
  const tensor::Shape shape = box.shape();
  std::int64_t run = shape.c;
  if (pixels) run *= shape.w;
  if (rows) run *= shape.h;
  if (images) run *= shape.n;
  const std::int64_t n_last = images ? box.n.first + 1 : box.n.last;
  const std::int64_t h_last = rows ? box.h.first + 1 : box.h.last;
  const std::int64_t w_last = pixels ? box.w.first + 1 : box.w.last;
  for (std::int64_t n = box.n.first; n < n_last; ++n) {
    for (std::int64_t h = box.h.first; h < h_last; ++h) {
      for (std::int64_t w = box.w.first; w < w_last; ++w) {
        move(from.data + place_of(from.box, n, h, w, box.c.first),
             into.data + place_of(into.box, n, h, w, box.c.first), run);
      }
    }
  }
}

}  // namespace

void copy_box(const Box& box, BoxView<const float> from, BoxView<float> into) {
  for_each_run(box, from, into, [](const float* source, float* target, std::int64_t count) {
    std::copy_n(source, count, target);
  });
}

void add_box(const Box& box, BoxView<const float> from, BoxView<float> into) {
  for_each_run(box, from, into, [](const float* source, float* target, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) target[i] += source[i];
  });
}

}  // namespace rondo::train

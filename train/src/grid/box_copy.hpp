#pragma once

#include <rondo/train/box.hpp>

namespace rondo::train {

/// Dense memory that holds a box of a whole array. Not owning; null where the box is empty.
template <typename T>
struct BoxView {
  T* data = nullptr;
  Box box = {};
};

/// Copies `box`, which lies within both.
void copy_box(const Box& box, BoxView<const float> from, BoxView<float> into);

/// Adds `box` of `from` to that of `into`.
void add_box(const Box& box, BoxView<const float> from, BoxView<float> into);

}  // namespace rondo::train

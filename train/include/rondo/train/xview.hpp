#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <rondo/tensor/xview.hpp>
#include <rondo/train/dataset.hpp>
#include <rondo/train/parameters.hpp>

namespace rondo::train {

// Xtensor expressions of what a program is handed; tensor::xview() makes those of what a layer or
// an augmentation is given, and tensor::xmatrix() those of logits. All read the memory of their
// argument, write it unless it is const, and live no longer.

/// The images of a batch, {images, height, width, channels}; of a rank's part of them, where the
/// batch has no more. A Loader always gives the part;
/// whoever makes a batch by hand for this gives it, too.
[[nodiscard]] inline auto xview(const Batch& batch) {
  return tensor::xview(tensor::View<const float>(batch.images.data(), batch.part.value().shape()));
}

/// One parameter of the flat array that its layout describes, in the parameter's shape: filters are
/// {outputs, inputs, height, width}.
template <typename T>
[[nodiscard]] auto xview(const Parameter& parameter, std::span<T> array) {
  const std::span<T> own = array.subspan(parameter.offset, parameter.size());
  const std::vector<std::size_t> extents(parameter.shape.begin(), parameter.shape.end());
  return xt::adapt(own.data(), own.size(), xt::no_ownership(), extents);
}

}  // namespace rondo::train

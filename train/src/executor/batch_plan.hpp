#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <rondo/tensor/shape.hpp>
#include <rondo/train/box.hpp>

#include "layers/layer_kernel.hpp"

namespace rondo::train {

/// What a rank runs for one number of images.
struct BatchPlan {
  std::int64_t images = 0;                 ///< of the batch that it is given
  std::vector<tensor::Shape> shapes = {};  ///< of every value, as this rank holds it
  std::vector<std::unique_ptr<LayerKernel>> kernels = {};  ///< of every node
  std::optional<Box> input = {};  ///< the part of the batch that it reads; none: all of it
  Range judged = {};              ///< the images whose logits this rank has
  bool counts = true;             ///< their loss is this rank's to report, no other's
};

}  // namespace rondo::train

#pragma once

#include <cstdint>

#include <rondo/tensor/convolution.hpp>
#include <rondo/train/box.hpp>
#include <rondo/train/halo.hpp>
#include <rondo/train/model.hpp>

#include "grid/local_windows.hpp"
#include "layers/grid_layer.hpp"

namespace rondo::train {

/// What one rank computes of a convolution whose pictures are split in space.
struct SpaceGeometry {
  SpaceGeometry(const ConvolutionLayer& layer, const GridLayer& place, int rank);

  /// Of the kernel for forward and backward-weights, where this rank has an output: without a
  /// gradient of the input.
  [[nodiscard]] tensor::ConvolutionSpec forward_spec(const ConvolutionLayer& layer) const;
  /// Of the kernel for backward-data alone, where some input has a gradient.
  [[nodiscard]] tensor::ConvolutionSpec data_spec(const ConvolutionLayer& layer) const;
  /// Do both compute on the same pictures, so that one kernel will do?
  [[nodiscard]] bool has_one_kernel(const ConvolutionLayer& layer) const;

  Windows windows;
  Box x;
  std::int64_t height;  ///< of whole pictures
  Halo forward;
  Halo backward;
  LocalWindows forward_local;
  LocalWindows backward_local;
  Box reads;    ///< of x, by forward and backward-weights
  Box reached;  ///< of dx: the rest is zero
};

}  // namespace rondo::train

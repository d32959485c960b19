#pragma once

#include <cstddef>

#include <rondo/tensor/batch_norm.hpp>
#include <rondo/tensor/convolution.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/export.hpp>
#include <rondo/tensor/fully_connected.hpp>
#include <rondo/tensor/pooling.hpp>

namespace rondo::tensor {

/// Bytes that a layer takes from its engine's memory resource when it is made.
struct KernelMemory {
  std::size_t own = 0;  ///< packed weights, indices of maxima, statistics
  // The engine has one of each for all layers, which is as large as the largest.
  std::size_t scratchpad = 0;
  std::size_t reorder_buffer = 0;
};

// The memory of a layer of this spec: oneDNN is asked which kernels it would choose, but makes
// none, so that this takes well below a millisecond. Throws as the layer's constructor does, but
// not where oneDNN has only a reference kernel, or this processor does not compute the type.

[[nodiscard]] RONDO_TENSOR_API KernelMemory memory_of(Engine& engine, const ConvolutionSpec& spec);
[[nodiscard]] RONDO_TENSOR_API KernelMemory memory_of(Engine& engine,
                                                      const FullyConnectedSpec& spec);
[[nodiscard]] RONDO_TENSOR_API KernelMemory memory_of(Engine& engine, const PoolingSpec& spec);
/// `shared`: its statistics are those of several ranks.
[[nodiscard]] RONDO_TENSOR_API KernelMemory memory_of(Engine& engine, const BatchNormSpec& spec,
                                                      bool shared = false);

}  // namespace rondo::tensor

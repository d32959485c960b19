#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/kernel_memory.hpp>
#include <rondo/train/grid.hpp>
#include <rondo/train/model.hpp>

#include "grid/lowering.hpp"

namespace rondo::train {

/// tensor::memory_of(), which is asked once for each spec.
class KernelMemories {
 public:
  explicit KernelMemories(int threads) : engine_(threads) {}

  [[nodiscard]] tensor::KernelMemory of(const tensor::ConvolutionSpec& spec);
  [[nodiscard]] tensor::KernelMemory of(const tensor::FullyConnectedSpec& spec);
  [[nodiscard]] tensor::KernelMemory of(const tensor::PoolingSpec& spec);
  [[nodiscard]] tensor::KernelMemory of(const tensor::BatchNormSpec& spec, bool shared);

 private:
  template <typename Spec>
  tensor::KernelMemory known(const std::vector<std::int64_t>& key, const Spec& spec);

  tensor::Engine engine_;
  std::map<std::vector<std::int64_t>, tensor::KernelMemory> known_;
};

/// What the kernel of node `node` takes on rank `rank` of a group that trains together, with what
/// it keeps for messages: as the functions of grid_kernels.hpp make it. For a shape that oneDNN has
/// no kernel for, as if weights were kept once.
[[nodiscard]] tensor::KernelMemory memory_of_node(KernelMemories& kernels, const Model& model,
                                                  const Lowering& lowering, std::size_t node,
                                                  int rank, BatchNormGroup statistics);

}  // namespace rondo::train

#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/kernel_memory.hpp>

namespace rondo::train {

/// tensor::memory_of(), which is asked once for each spec.
class KernelMemories {
 public:
  KernelMemories(int threads, tensor::ConvolutionAlgorithm convolutions)
      : engine_(threads, std::pmr::get_default_resource(), convolutions) {}

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

}  // namespace rondo::train

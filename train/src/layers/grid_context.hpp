#pragma once

#include <memory_resource>

#include <rondo/tensor/engine.hpp>

#include "grid/grid_communicators.hpp"
#include "layers/layer_kernel.hpp"

namespace rondo::train {

/// What kernels on a grid share; all lent.
struct GridContext {
  tensor::Engine& engine;
  GridCommunicators& communicators;
  std::pmr::memory_resource* memory = nullptr;  ///< for what travels: the World's arena
  /// Null, or the ranks in this rank's place in other groups, whose batch norm shares statistics
  /// with this one's where they are BatchNormGroup::all.
  transport::Communicator* across = nullptr;
  /// For evaluation kernels have no backward, and take no memory for it.
  KernelPurpose purpose = KernelPurpose::training;

  [[nodiscard]] bool trains() const noexcept { return purpose == KernelPurpose::training; }
};

}  // namespace rondo::train

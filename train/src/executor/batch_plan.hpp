#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <rondo/tensor/engine.hpp>
#include <rondo/train/model.hpp>

#include "executor/layer_kernel.hpp"

namespace rondo::train {

/// The kernels of all layers for one number of images.
struct BatchPlan {
  std::int64_t images = 0;
  std::vector<std::unique_ptr<LayerKernel>> kernels = {};
};

[[nodiscard]] BatchPlan make_batch_plan(tensor::Engine& engine, const Model& model,
                                        std::int64_t images);

/// The same for another number of images; shares packed weights where the kernels allow.
[[nodiscard]] BatchPlan make_batch_plan(const BatchPlan& other, std::int64_t images);

}  // namespace rondo::train

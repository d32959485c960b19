#pragma once

#include <vector>

#include <rondo/tensor/engine.hpp>
#include <rondo/train/model_benchmark.hpp>

namespace rondo::train {

/// Times the kernels of one layer for inputs of shape `input`.
[[nodiscard]] std::vector<KernelTime> measure_layer(tensor::Engine& engine, const LayerSpec& layer,
                                                    tensor::Shape input);

}  // namespace rondo::train

#pragma once

#include <cstdint>

#include <rondo/train/model.hpp>

namespace rondo::train {

/// The CIFAR ResNet of He et al. (2016), section 4.2, with 6 * blocks + 2 layers (3 blocks per
/// stage: ResNet-20) and projection shortcuts (their option B).
[[nodiscard]] Model make_resnet_cifar(std::int64_t blocks, tensor::Shape input,
                                      std::int64_t classes);

}  // namespace rondo::train

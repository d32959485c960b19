#pragma once

#include <cstdint>

#include <rondo/train/model.hpp>

namespace rondo::train {

// The ResNets of He et al. (2016), section 4.1, for pictures of 224x224x3 and 1,000 classes unless
// told otherwise, as torchvision builds them: a bottleneck halves the picture in its 3x3
// convolution, and projection shortcuts where the shape changes.

[[nodiscard]] Model make_resnet18(tensor::Shape input, std::int64_t classes);
[[nodiscard]] Model make_resnet34(tensor::Shape input, std::int64_t classes);
[[nodiscard]] Model make_resnet50(tensor::Shape input, std::int64_t classes);

/// ResNet-50 with 3x3 convolutions twice as wide (Zagoruyko, Komodakis, 2016).
[[nodiscard]] Model make_wide_resnet50_2(tensor::Shape input, std::int64_t classes);

}  // namespace rondo::train

#pragma once

#include <cstdint>

#include <rondo/train/model.hpp>

namespace rondo::train {

// torchvision's VGG networks (Simonyan, Zisserman, 2015) without their dropout, for pictures of
// 224x224x3 and 1,000 classes unless told otherwise; _bn: with batch norm behind each convolution.

[[nodiscard]] Model make_vgg11(tensor::Shape input, std::int64_t classes);
[[nodiscard]] Model make_vgg11_bn(tensor::Shape input, std::int64_t classes);
[[nodiscard]] Model make_vgg16(tensor::Shape input, std::int64_t classes);
[[nodiscard]] Model make_vgg16_bn(tensor::Shape input, std::int64_t classes);

}  // namespace rondo::train

#pragma once

#include <cstdint>

#include <rondo/train/model.hpp>

namespace rondo::train {

/// torchvision's AlexNet (Krizhevsky, "One weird trick", 2014) without its dropout: 61,100,840
/// parameters for 224x224x3 pictures and 1,000 classes.
[[nodiscard]] Model make_alexnet(tensor::Shape input, std::int64_t classes);

/// The AlexNet of 2012 as cost models take it: 227x227x3 pictures, filters 96-256-384-384-256,
/// ungrouped, fully connected 4096-4096-1000, max-poolings 3x3 with stride 2; neither local
/// response normalisation nor dropout. 62,367,776 weights and 10,568 biases, named as Caffe does
/// (conv1 to conv5, fc6 to fc8).
[[nodiscard]] Model make_alexnet_2012(tensor::Shape input, std::int64_t classes);

}  // namespace rondo::train

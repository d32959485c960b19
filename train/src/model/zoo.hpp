#pragma once

#include <cstdint>

#include <rondo/train/model.hpp>

namespace rondo::train {

// Layers that several models are made of.
inline constexpr auto relu = tensor::Activation::relu;
inline constexpr BatchNormLayer norm_relu{};
inline constexpr BatchNormLayer norm_only{.activation = tensor::Activation::none};
inline constexpr BatchNormLayer norm_add_relu{.residual = true};

/// LeNet-5 with ReLU and max-pooling: 61,706 parameters for 28x28x1 images and 10 classes.
[[nodiscard]] Model make_lenet5(tensor::Shape input, std::int64_t classes);

/// torchvision's AlexNet (Krizhevsky, "One weird trick", 2014), with its dropout: 61,100,840
/// parameters for 224x224x3 images and 1,000 classes.
[[nodiscard]] Model make_alexnet(tensor::Shape input, std::int64_t classes);

/// The AlexNet of 2012 as cost models take it: 227x227x3 images, filters 96-256-384-384-256,
/// ungrouped, fully connected 4096-4096-1000, max-poolings 3x3 with stride 2; neither local
/// response normalisation nor dropout. 62,367,776 weights and 10,568 biases, named as Caffe does
/// (conv1 to conv5, fc6 to fc8).
[[nodiscard]] Model make_alexnet_2012(tensor::Shape input, std::int64_t classes);

// torchvision's VGG networks (Simonyan, Zisserman, 2015) with their dropout, for images of
// 224x224x3 and 1,000 classes unless told otherwise; _bn: with batch norm behind each convolution.

[[nodiscard]] Model make_vgg11(tensor::Shape input, std::int64_t classes);
[[nodiscard]] Model make_vgg11_bn(tensor::Shape input, std::int64_t classes);
[[nodiscard]] Model make_vgg16(tensor::Shape input, std::int64_t classes);
[[nodiscard]] Model make_vgg16_bn(tensor::Shape input, std::int64_t classes);

/// The CIFAR ResNet of He et al. (2016), section 4.2, with 6 * blocks + 2 layers (3 blocks per
/// stage: ResNet-20) and projection shortcuts (their option B).
[[nodiscard]] Model make_resnet_cifar(std::int64_t blocks, tensor::Shape input,
                                      std::int64_t classes);

/// The ResNet for CIFAR of He et al., "Identity mappings" (2016): batch norm and ReLU stand in
/// front of each convolution, and shortcuts are sums without an activation. Projection shortcuts
/// where the shape changes.
[[nodiscard]] Model make_preact_resnet(std::int64_t blocks, tensor::Shape input,
                                       std::int64_t classes);

/// DenseNet for CIFAR: 40 layers, growth rate 12, neither bottlenecks nor compression.
[[nodiscard]] Model make_densenet40_12(tensor::Shape input, std::int64_t classes);

/// torchvision's DenseNet-121: 7,978,856 parameters for 1,000 classes.
[[nodiscard]] Model make_densenet121(tensor::Shape input, std::int64_t classes);

/// torchvision's MobileNet v2: 3,504,872 parameters for 1,000 classes.
[[nodiscard]] Model make_mobilenet_v2(tensor::Shape input, std::int64_t classes);

// The ResNets of He et al. (2016), section 4.1, for images of 224x224x3 and 1,000 classes unless
// told otherwise, as torchvision builds them: a bottleneck halves the image in its 3x3
// convolution, and projection shortcuts where the shape changes.

[[nodiscard]] Model make_resnet18(tensor::Shape input, std::int64_t classes);
[[nodiscard]] Model make_resnet34(tensor::Shape input, std::int64_t classes);
[[nodiscard]] Model make_resnet50(tensor::Shape input, std::int64_t classes);

/// ResNet-50 with 3x3 convolutions twice as wide (Zagoruyko, Komodakis, 2016).
[[nodiscard]] Model make_wide_resnet50_2(tensor::Shape input, std::int64_t classes);

}  // namespace rondo::train

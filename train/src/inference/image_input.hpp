#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include <rondo/tensor/tensor.hpp>

namespace rondo::train {

// One image in memory: 8-bit pixels, NHWC with n = 1.
struct Image {
  tensor::Shape shape = {};
  std::vector<std::uint8_t> pixels = {};
};

// Reads a binary PPM (P6, three channels) or PGM (P5, one channel) of 8 bits. Throws DataError that
// names the file and what is wrong with it.
[[nodiscard]] Image read_image(const std::filesystem::path& file);

// `image` as a model takes it that was trained on images of `wanted`: scaled, with its proportions,
// to the least size that covers `wanted`, then its middle is cut out. Grey becomes three equal
// channels, and colours become grey, where the model wants that. An image of the wanted shape stays
// as it is. Throws std::invalid_argument for other numbers of channels.
[[nodiscard]] Image fit_image(const Image& image, const tensor::Shape& wanted);

}  // namespace rondo::train

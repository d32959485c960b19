#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <rondo/tensor/tensor.hpp>
#include <rondo/train/dataset.hpp>
#include <rondo/train/experiment.hpp>
#include <rondo/train/loader.hpp>

namespace rondo::train {

// A Loader's options from a configuration. The caller knows the rest: how much is asked for at
// once, and who is told of broken images.
[[nodiscard]] LoaderOptions loader_options(const Experiment& experiment, const Dataset& dataset);

// "crop" of "crop:4", an entry of data.augment.
[[nodiscard]] std::string_view augmentation_name(std::string_view text);

// What is wrong with an entry of data.augment, such as "crop:4"; empty if nothing is.
[[nodiscard]] std::string complaint_about_augmentation(std::string_view text);

// Moves an image up by `down` rows and left by `right` columns (negative: down, right). What is
// uncovered becomes 0.
void shift_image(tensor::View<std::uint8_t> image, std::int64_t down, std::int64_t right);

// Exchanges left and right.
void mirror_image(tensor::View<std::uint8_t> image);

}  // namespace rondo::train

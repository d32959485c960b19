#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <rondo/train/dataset.hpp>
#include <rondo/train/model.hpp>
#include <rondo/train/parameters.hpp>

#include "weights/safetensors.hpp"

namespace rondo::train {

// The weights of a trained model, whole: flat arrays as layout_of(model) says.
struct ModelWeights {
  std::vector<float> parameters = {};
  std::vector<float> statistics = {};
};

// Copies what a rank holds, as `part` says, to its position in the whole model, as `whole` says.
void add_part(const ParameterLayout& part, std::span<const float> parameters,
              std::span<const float> statistics, const ParameterLayout& whole,
              ModelWeights& weights);

// The other way round: copies what a rank holds out of the whole model.
void take_part(const ModelWeights& weights, const ParameterLayout& whole,
               const ParameterLayout& part, std::span<float> parameters,
               std::span<float> statistics);

// Writes the weights of `model` with torchvision's names, and with what others need to use them:
// the model's name, the shape of its images, its classes, and the mean and deviation that images
// are normalised with. Throws DataError.
void save_weights(const std::filesystem::path& file, const Model& model, const Dataset& dataset,
                  const ModelWeights& weights);

// Throws DataError where the file lacks a tensor of the model, has one of another shape, or one
// that belongs to no layer of the model; but for what matches a pattern of `skip`. Throws
// ConfigError for a pattern that matches nothing. A prefix that note_of_weights() tells of does not
// count, unless names of the model begin with it, too. Reads no values.
void expect_weights(const SafetensorsFile& source, const ParameterLayout& layout,
                    std::span<const std::string> skip = {});

// Reads what `layout` says that this rank holds, but for what matches a pattern of `skip`: that
// stays as it is, whatever the file has of it. A file of PyTorch's will do: its counters of batches
// are passed over. Throws as expect_weights(), and DataError where a tensor contains NaN or Inf.
void load_weights(const SafetensorsFile& source, const ParameterLayout& layout,
                  std::span<float> parameters, std::span<float> statistics,
                  std::span<const std::string> skip = {});

// Throws DataError that names `source` and the first tensor that contains NaN or Inf.
void expect_finite(const std::filesystem::path& source, const ParameterLayout& layout,
                   const ModelWeights& weights);

// The file's description of the images that its model takes: a data set without images, but with
// their shape. Nothing when it does not say all of it, as a file of PyTorch's. Throws DataError
// where it says something impossible.
[[nodiscard]] std::optional<Dataset> images_described_by(const SafetensorsFile& file);

}  // namespace rondo::train

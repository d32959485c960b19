#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include <rondo/tensor/engine.hpp>
#include <rondo/train/export.hpp>
#include <rondo/train/model.hpp>

namespace rondo::train {

/// A model and what it has learned, in flat arrays as layout_of(model) says.
struct TrainedModel {
  Model model = {};
  std::vector<float> parameters = {};
  std::vector<float> statistics = {};
};

/// The model of that name or description with the weights of a safetensors file, as
/// model.safetensors of a run's folder, or one that PyTorch has written. Throws DataError where the
/// file cannot be read, is another model's, or contains NaN or Inf.
[[nodiscard]] RONDO_TRAIN_API TrainedModel load_trained(const Model& model,
                                                        const std::filesystem::path& file);

/// The same function with fewer layers, for inference alone: where a batch norm is the only reader
/// of a convolution without activation, the convolution takes over its scale, shift and activation;
/// of a residual batch norm the sum is left. Dropout goes. Logits differ by rounding: about 1e-5
/// relative, more where a batch norm takes off a mean that is nearly all of what it reads.
[[nodiscard]] RONDO_TRAIN_API TrainedModel fold_batch_norms(const TrainedModel& trained);

/// A trained model that tells what images show: batch norm folded, kernels of the forward pass
/// alone, no gradients, no labels.
///
/// Belongs to one thread at a time, together with its Engine, which is lent.
class RONDO_TRAIN_API Predictor {
 public:
  /// Takes at most `most_images` at once.
  Predictor(tensor::Engine& engine, const TrainedModel& trained, std::int64_t most_images);
  Predictor(const Predictor&) = delete;
  Predictor& operator=(const Predictor&) = delete;
  ~Predictor();

  /// As it runs, after folding.
  [[nodiscard]] const Model& model() const noexcept;

  /// The logits, images x classes, until the next call. Images are NHWC and normalised as in
  /// training: (pixel / 255 - mean) / deviation, of each channel. The first call for a number of
  /// images makes its kernels.
  [[nodiscard]] std::span<const float> logits(std::span<const float> images, std::int64_t count);

  /// The class with the largest logit of each image.
  [[nodiscard]] std::vector<std::int64_t> classes(std::span<const float> images,
                                                  std::int64_t count);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rondo::train

#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <rondo/train/experiment.hpp>
#include <rondo/train/export.hpp>
#include <rondo/train/model.hpp>

namespace rondo::transport {
class World;
}

namespace rondo::train {

/// A Predictor for files of images: a model with weights from a file, which tells what is on an
/// image.
///
/// Images are normalised with the mean and deviation that the file says; if it says none, as a file
/// of PyTorch's, with those of the data of `experiment`, which are then read. The weights may be
/// those of a checkpoint, as export_weights() takes them. Belongs to one thread at a time.
class RONDO_TRAIN_API Classifier {
 public:
  /// Throws DataError or ConfigError when the file, or the data, cannot be read, or are not of the
  /// model.
  Classifier(const Experiment& experiment, const std::filesystem::path& weights, int threads = 1);
  Classifier(const Classifier&) = delete;
  Classifier& operator=(const Classifier&) = delete;
  ~Classifier();

  [[nodiscard]] const Model& model() const noexcept;

  /// By class; empty where neither the file of weights nor the data say them.
  [[nodiscard]] const std::vector<std::string>& class_names() const noexcept;

  /// The logit of each class for the image in `file`, a JPEG, PNG, PPM or PGM: its centre, with its
  /// proportions, scaled to the model's input. For a model of a folder of images the centre is that
  /// of a test image, as data.centre_crop says, else the largest that there is. Throws DataError
  /// when it cannot be read.
  [[nodiscard]] std::vector<float> logits(const std::filesystem::path& file);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// A test set as a model with given weights classifies it.
struct TestResult {
  std::int64_t images = 0;
  double loss = 0.0;      ///< mean over the test set
  double accuracy = 0.0;  ///< percent
  double seconds = 0.0;   ///< of the slowest rank, without reading files
};

/// Loss and accuracy of the model of `experiment` on the test set of its data, with the weights of
/// a file, or of a checkpoint as export_weights() takes them. The ranks of `world` share out the
/// test set; each holds the whole model, whatever [grid] says. The same on every rank. `on_broken`
/// is that of TrainerOptions. Collective; throws DataError or ConfigError on all ranks alike, and
/// NumericError where the model gives NaN or Inf for an image.
[[nodiscard]] RONDO_TRAIN_API TestResult evaluate(
    transport::World& world, const Experiment& experiment, const std::filesystem::path& weights,
    int threads = 1, const std::function<void(const std::string& problem)>& on_broken = {});

}  // namespace rondo::train

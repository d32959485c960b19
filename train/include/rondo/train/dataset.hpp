#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <rondo/tensor/tensor.hpp>
#include <rondo/train/experiment.hpp>
#include <rondo/train/export.hpp>
#include <rondo/train/image.hpp>
#include <rondo/train/partition.hpp>

namespace rondo::train {

/// Some images and their labels, ready for the first layer: NHWC, normalised, augmented.
/// Not owning. A batch may be empty: a rank without a sample still takes part in every step.
struct Batch {
  std::int64_t samples = 0;
  /// samples * height * width * channels, or the elements of `part` alone.
  std::span<const float> images = {};
  std::span<const std::int32_t> labels = {};  ///< samples
  /// Where images are mixtures of two (mixup): the labels of the others, and the first ones' share.
  std::span<const std::int32_t> other_labels = {};
  double share = 1.0;
  /// The part of the images that a rank of a grid computes on; all of them where there is none.
  std::optional<Box> part = {};
};

/// A data file is missing, truncated, or holds what it must not; what() is one line that names
/// the file and says what to do.
class RONDO_TRAIN_API DataError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Labelled images of one size: in memory, or read by a source when they are needed.
struct Images {
  tensor::Shape shape = {};               ///< n = number of images
  std::vector<std::uint8_t> pixels = {};  ///< NHWC; empty where there is a source
  std::vector<std::int32_t> labels = {};  ///< one per image: 0 <= label < classes
  std::shared_ptr<const ImageSource> source = {};
};

/// A training set and a test set of images of one size, and what to normalise them with: mean
/// and standard deviation of the training pixels, scaled to [0, 1].
struct Dataset {
  std::string name = {};
  std::int64_t classes = 0;
  Images training = {};
  Images test = {};
  std::vector<float> mean = {};               ///< per channel
  std::vector<float> stddev = {};             ///< per channel; 1 where all pixels are equal
  std::vector<std::string> class_names = {};  ///< by label; empty where they are not known
  std::string note = {};                      ///< one line that a run says of them, or nothing
};

/// The shape of one image (n = 1), or {}, and the number of classes, or 0, where only a model
/// decides.
struct DatasetShape {
  tensor::Shape image = {};
  std::int64_t classes = 0;
};

/// What is known of the images that load_dataset() will give, without reading a file.
/// Throws ConfigError when `data` names no known data set.
[[nodiscard]] RONDO_TRAIN_API DatasetShape dataset_shape(const Experiment::Data& data);

/// The data set that `experiment.data` names, from its path or the default one. `model_input` and
/// `model_classes` are what a synthetic data set gets where the experiment does not say.
/// Throws DataError, or ConfigError when a path is needed and not given.
[[nodiscard]] RONDO_TRAIN_API Dataset load_dataset(const Experiment::Data& data,
                                                   const tensor::Shape& model_input,
                                                   std::int64_t model_classes);

/// Fashion-MNIST or MNIST from the four idx files (train-images-idx3-ubyte and so on, gzipped with
/// .gz behind the name, or not) in `folder`.
[[nodiscard]] RONDO_TRAIN_API Dataset read_idx(const std::filesystem::path& folder);

/// The JPEG, PNG, PPM and PGM images of `folder`/train/CLASS and `folder`/val/CLASS (or
/// test/CLASS), for images of `height` x `width` pixels. Classes are numbered in the order of their
/// names. Only the names are read; images are decoded when a Loader asks for them. Mean and
/// deviation are those of ImageNet.
[[nodiscard]] RONDO_TRAIN_API Dataset list_folder(const std::filesystem::path& folder,
                                                  std::int64_t height, std::int64_t width);

struct SyntheticOptions {
  tensor::Shape shape = {0, 28, 28, 1};  ///< of one image; n is ignored
  std::int64_t classes = 10;
  std::int64_t training = 10'000;
  std::int64_t test = 1'000;
  std::uint64_t seed = 1;
};

/// Images that need no file and can be learned: every class has a pattern of its own, and each
/// image is its class's pattern shifted, dimmed and noisy. The same for the same options.
[[nodiscard]] RONDO_TRAIN_API Dataset make_synthetic(const SyntheticOptions& options);

}  // namespace rondo::train

#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <rondo/tensor/shape.hpp>
#include <rondo/train/export.hpp>

namespace rondo::train {

/// A data file is missing, truncated, or holds what it must not; what() is one line that names
/// the file and says what to do.
class RONDO_TRAIN_API DataError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Labelled pictures in memory: 8-bit NHWC, and the per-channel mean and standard deviation (of
/// values scaled to [0, 1]) to normalise them with.
struct Pictures {
  tensor::Shape shape = {};  ///< n = number of pictures
  std::vector<std::uint8_t> pixels = {};
  std::vector<std::int32_t> labels = {};
};

/// A training set and a test set.
struct Dataset {
  std::string name = {};
  std::int64_t classes = 0;
  Pictures training = {};
  Pictures test = {};
  std::vector<float> mean = {};    ///< per channel
  std::vector<float> stddev = {};  ///< per channel
};

/// Fashion-MNIST or MNIST from idx files, gzipped or not, in `folder`.
[[nodiscard]] RONDO_TRAIN_API Dataset read_idx(const std::filesystem::path& folder);

/// CIFAR-10 from its binary files in `folder`, or in its subfolder cifar-10-batches-bin.
[[nodiscard]] RONDO_TRAIN_API Dataset read_cifar10(const std::filesystem::path& folder);

struct SyntheticOptions {
  tensor::Shape shape = {0, 28, 28, 1};  ///< of one picture; n is ignored
  std::int64_t classes = 10;
  std::int64_t training = 10'000;
  std::int64_t test = 1'000;
  std::uint64_t seed = 1;
};

/// Pictures that need no file and can be learned: every class has a pattern of its own, and each
/// picture is its class's pattern shifted, dimmed and noisy. The same for the same options.
[[nodiscard]] RONDO_TRAIN_API Dataset make_synthetic(const SyntheticOptions& options);

}  // namespace rondo::train

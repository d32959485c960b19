#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <rondo/train/dataset.hpp>
#include <rondo/train/experiment.hpp>
#include <rondo/train/export.hpp>
#include <rondo/train/model.hpp>

namespace rondo::train {

/// A summary of the values of a tensor. NaN and infinite values are counted, and left out of all
/// else.
struct TensorStatistics {
  // Computed from the finite values; NaN when there are none.
  double norm = 0.0;  ///< Euclidean
  double mean = 0.0;
  double min = 0.0;
  double max = 0.0;
  std::uint64_t not_finite = 0;
  /// How many values lie in each of so many equal parts of [min, max].
  std::array<std::uint64_t, 16> histogram = {};
};

/// A tensor of a safetensors file.
struct TensorSummary {
  std::string name = {};
  std::string type = {};  ///< F64, F32, F16, BF16, I64, ...
  std::vector<std::int64_t> shape = {};
  std::uint64_t elements = 0;
  std::uint64_t bytes = 0;
  std::optional<TensorStatistics> statistics = {};  ///< of floats
};

struct WeightsSummary {
  std::map<std::string, std::string> metadata = {};
  std::vector<TensorSummary> tensors = {};  ///< in the order of the file
};

/// The contents of a safetensors file, whichever program has written it. Throws DataError when the
/// file cannot be read, or breaks a rule of the format.
[[nodiscard]] RONDO_TRAIN_API WeightsSummary summarize_weights(const std::filesystem::path& file);

/// One line about a prefix that all names in `file` share, as wrappers of PyTorch give it: a model
/// leaves it out. Empty where there is none, and of a checkpoint. Throws as summarize_weights().
[[nodiscard]] RONDO_TRAIN_API std::string note_of_weights(const std::filesystem::path& file);

/// The checkpoint of the run in `run_folder` that `which` means: "newest", "best" (the one with the
/// highest test accuracy), the number of its step, or a path. Throws DataError where there is none.
[[nodiscard]] RONDO_TRAIN_API std::filesystem::path find_checkpoint(
    const std::filesystem::path& run_folder, const std::string& which);

/// The parts that a program brought to a run itself, as TrainerOptions; lent. Null: the part that
/// the experiment names.
struct OwnParts {
  const Dataset* dataset = nullptr;
  const Model* model = nullptr;
};

/// Writes the weights of `from`, which must be those of the model of `experiment`, all of them, to
/// `to`: named and shaped as in torchvision, sorted by name, fp32, with metadata that say the
/// model, the shape of its images, the classes and their names, where these are known, and the mean
/// and deviation that images are normalised with. The same weights and metadata give the same
/// bytes. Facts about images that `from` lacks, as a file of PyTorch's does, come from the data of
/// `experiment`, which are then read.
///
/// `from` may also be a checkpoint, which is a folder, of a run with this experiment. Its weights
/// are means over its replicas. Throws DataError or ConfigError.
RONDO_TRAIN_API void export_weights(const Experiment& experiment, const std::filesystem::path& from,
                                    const std::filesystem::path& to, const OwnParts& own = {});

}  // namespace rondo::train

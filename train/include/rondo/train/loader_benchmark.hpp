#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <rondo/tensor/tensor.hpp>
#include <rondo/train/dataset.hpp>
#include <rondo/train/experiment.hpp>
#include <rondo/train/export.hpp>
#include <rondo/train/loader.hpp>

namespace rondo::train {

/// How fast training images are prepared by so many decoders, while nothing else is computed.
struct LoaderTime {
  int decoders = 0;
  std::int64_t images = 0;             ///< in one round
  double images_per_second = 0.0;      ///< the median of the rounds
  double images_per_cpu_second = 0.0;  ///< of the same round: by the processor time of all threads

  [[nodiscard]] double images_per_decoder() const noexcept { return images_per_second / decoders; }
};

struct LoaderTimes {
  std::string data = {};
  tensor::Shape image = {};  ///< n = 1
  std::vector<LoaderTime> times = {};
};

/// Reads the data of `experiment`, and lets a Loader prepare training images as a run would:
/// decoded, varied, normalised. For every entry of `decoders` there is a row; five rounds of
/// `round` each take turns. Batches that were prepared before a round do not count. Throws
/// ConfigError or DataError.
[[nodiscard]] RONDO_TRAIN_API LoaderTimes measure_loader(const Experiment& experiment,
                                                         std::span<const int> decoders,
                                                         std::chrono::duration<double> round);

/// The same of a data set that the program has. `options` are those of a run; its decoders and its
/// largest range are chosen here.
[[nodiscard]] RONDO_TRAIN_API LoaderTimes measure_loader(const Dataset& dataset,
                                                         LoaderOptions options,
                                                         std::span<const int> decoders,
                                                         std::chrono::duration<double> round);

}  // namespace rondo::train

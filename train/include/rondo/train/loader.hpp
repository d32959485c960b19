#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <rondo/tensor/tensor.hpp>
#include <rondo/train/dataset.hpp>
#include <rondo/train/export.hpp>

namespace rondo::train {

/// The random numbers of one augmentation for one sample. They depend on the seed, the epoch, the
/// sample and the augmentation's name alone (Philox 4x32, Salmon et al. 2011), so that a sample
/// looks the same whichever rank prepares it, and whatever was prepared before.
class RONDO_TRAIN_API SampleRandom {
 public:
  /// The streams of two augmentations are independent when their numbers differ.
  SampleRandom(std::uint64_t seed, std::int64_t epoch, std::int64_t sample, std::uint32_t stream);

  /// 32 random bits.
  std::uint32_t next();

  /// 0 <= number < `count`, where 0 < `count` < 2^32.
  std::int64_t below(std::int64_t count) { return next() % count; }

 private:
  std::uint64_t seed_;
  std::uint32_t epoch_;
  std::uint64_t sample_;
  std::uint32_t stream_;
  std::uint32_t drawn_ = 0;
  std::array<std::uint32_t, 4> words_ = {};
};

/// A random change of a training image, by a user of the library.
struct Augmentation {
  /// Two augmentations of one run have different names; the name keys the random numbers.
  std::string name = {};
  /// Changes `image` ({1, height, width, channels}, values of pixels) in place. Runs on the
  /// loader's thread, not on the one that trains.
  std::function<void(tensor::View<std::uint8_t> image, SampleRandom& random)> apply = {};
};

/// Samples [first, last) of step `step` of epoch `epoch`: a range of the epoch's shuffled order,
/// relative to the beginning of the step's global batch.
struct SampleRange {
  std::int64_t epoch = 0;
  std::int64_t step = 0;
  std::int64_t first = 0;
  std::int64_t last = 0;

  [[nodiscard]] bool operator==(const SampleRange&) const noexcept = default;
};

struct LoaderOptions {
  std::int64_t global_batch = 128;
  std::uint64_t seed = 1;
  std::int64_t crop_padding = 0;     ///< random crops out of a image padded by so many zeros
  bool flip = false;                 ///< random horizontal flips
  std::int64_t largest_range = 128;  ///< the most samples that are asked for at once
  std::vector<Augmentation> augmentations = {};  ///< run after crop and flip, in this order
};

/// Gives the images of any range of any step, shuffled and augmented.
///
/// Order, crops and flips are drawn by a counter-based generator keyed by (seed, epoch, sample,
/// purpose): a sample looks the same whichever rank asks for it, and whatever was asked before.
/// A thread of its own prepares what was announced by prefetch() while the caller computes.
/// A range may be empty. One that lies outside the epoch throws std::invalid_argument. Belongs to
/// one thread at a time. Memory is allocated in the constructor, and by the first load_test().
class RONDO_TRAIN_API Loader {
 public:
  /// Images and normalisation come from `dataset`, which must outlive the Loader.
  Loader(const Dataset& dataset, const LoaderOptions& options);
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;
  ~Loader();

  /// Steps of one epoch, the last of which may be short.
  [[nodiscard]] std::int64_t steps() const noexcept;
  /// Samples of the global batch of `step`.
  [[nodiscard]] std::int64_t samples(std::int64_t step) const noexcept;

  /// Announces the range that will be asked for next; returns at once. Of several announcements
  /// the last one counts.
  void prefetch(const SampleRange& range);

  /// The range's images, valid until the next load(). Waits when they are still being prepared;
  /// prepares them when they were not announced.
  [[nodiscard]] Batch load(const SampleRange& range);

  /// Images [first, last) of the test set, in order, normalised, not augmented; valid until the
  /// next load_test(). Prepared by the caller's thread.
  [[nodiscard]] Batch load_test(std::int64_t first, std::int64_t last);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rondo::train

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/tensor/tensor.hpp>
#include <rondo/train/dataset.hpp>
#include <rondo/train/export.hpp>
#include <rondo/train/image.hpp>
#include <rondo/train/partition.hpp>

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

  /// 0 <= number < 1, uniform.
  double unit() { return next() * 0x1p-32; }

 private:
  std::uint64_t seed_;
  std::uint32_t epoch_;
  std::uint64_t sample_;
  std::uint32_t stream_;
  std::uint32_t drawn_ = 0;
  std::array<std::uint32_t, 4> words_ = {};
};

/// A random change of a training image: make_augmentation() has the usual ones, a user of the
/// library adds others. It has one of the three functions. They run on the loader's threads,
/// several at once, and not on the one that trains.
struct Augmentation {
  /// Two augmentations of one run have different names; the name keys the random numbers.
  std::string name = {};
  /// Changes `image` ({1, height, width, channels}, values of pixels) in place.
  std::function<void(tensor::View<std::uint8_t> image, SampleRandom& random)> apply = {};
  /// Chooses the part of the original of `height` x `width` pixels that becomes the image. It runs
  /// before all that change pixels, and a list has at most one.
  std::function<ImageWindow(std::int64_t height, std::int64_t width, SampleRandom& random)> frame =
      {};
  /// Chooses a share in [0, 1], once for every global batch of a step: image i of its n becomes so
  /// much of itself, and for the rest image n - 1 - i, each varied and normalised as it would be by
  /// itself; labels likewise. Drawn with the step in place of the sample. A list has at most one.
  std::function<double(SampleRandom& random)> mix = {};
};

/// The augmentation that an entry of data.augment names: "crop:4", "flip",
/// "random_resized_crop:0.08,1", "color_jitter:0.4,0.4,0.4", "cutout:8", "mixup:0.2"; numbers that
/// are left out have these values. `mean` is the data set's, in [0, 1]: the colour that cutout
/// paints with. Throws std::invalid_argument.
[[nodiscard]] RONDO_TRAIN_API Augmentation make_augmentation(std::string_view text,
                                                             std::span<const float> mean);

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
  std::int64_t largest_range = 128;              ///< the most samples that are asked for at once
  std::vector<Augmentation> augmentations = {};  ///< of training images, in this order
  /// Where no augmentation chooses a window in the images of an ImageSource, it is their centre,
  /// whose shorter side is this share of the original's.
  double centre_crop = 1.0;
  /// How many announced ranges are prepared; 0: 1 for images in memory, 3 for an ImageSource.
  int ahead = 0;
  /// Threads that prepare images; 0: 1 for images in memory, for an ImageSource as many as
  /// transport::UsableCpus::threads() says.
  int decoders = 0;
  std::vector<int> decoder_cpus = {};  ///< of these threads; empty: transport::usable_cpus()
  BrokenImages broken = BrokenImages::refuse;
  /// Called when an image that is skipped is met for the first time, on a decoder's thread: perhaps
  /// by several of them at the same time.
  std::function<void(const std::string& problem)> on_broken = {};
};

/// Gives the images of any range of any step, shuffled and augmented.
///
/// Order and augmentations are drawn by a counter-based generator keyed by (seed, epoch, sample,
/// augmentation): a sample looks the same whichever rank asks for it, and whatever was asked
/// before. Threads of its own prepare what was announced by prefetch() while the caller computes.
/// A range may be empty. One that lies outside the epoch throws std::invalid_argument. Belongs to
/// one thread at a time. Memory of a batch is allocated when a range, or a part of one, is the
/// largest so far; an ImageSource may allocate for the images that are being decoded.
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

  /// For a rank that computes on a part of its batches: of ranges of n samples, and test batches of
  /// n, only the samples, rows and columns in parts[n] are prepared, with all channels, and a batch
  /// has no memory for others: see Batch::part. Labels are given for all. Ranges of other numbers
  /// are prepared whole. With BrokenImages::skip all samples of an ImageSource are read, because
  /// the label of a stand-in is known only when it has been decoded; rows and columns are cut all
  /// the same. Called before the first range is announced and the first test batch.
  void read_only(std::map<std::int64_t, Box> parts);

  /// How many announcements count: 1 or more.
  [[nodiscard]] int ahead() const noexcept;

  /// Announces a range that will be asked for after those announced before; returns at once. Only
  /// the last ahead() announced ranges count.
  void prefetch(const SampleRange& range);

  /// The range's images, valid until the next load(). Waits when they are still being prepared;
  /// prepares them when they were not announced. Forgets what was announced before the range, or
  /// everything if the range was not.
  [[nodiscard]] Batch load(const SampleRange& range);

  /// Images [first, last) of the test set, in order, normalised, not augmented; valid until the
  /// next load_test(). Images in memory are prepared by the caller's thread; those of an
  /// ImageSource by decoders, together with as many that follow.
  [[nodiscard]] Batch load_test(std::int64_t first, std::int64_t last);
  /// The same; `next` is what is read next: no longer than [first, last), and maybe empty.
  [[nodiscard]] Batch load_test(std::int64_t first, std::int64_t last, Range next);

  /// The most bytes of its batches, with test batches of `test_batch` samples.
  [[nodiscard]] std::size_t batch_bytes(std::int64_t test_batch) const;

  /// The most bytes that the threads which prepare images keep for themselves. Threads for the test
  /// set exist only if it is ever loaded: `loads_test`.
  [[nodiscard]] std::size_t thread_bytes(bool loads_test = true) const noexcept;

  /// How often an image stood in for a broken one in the batches that were loaded so far.
  [[nodiscard]] std::int64_t skipped() const noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rondo::train

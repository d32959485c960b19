#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include <rondo/tensor/view.hpp>
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

}  // namespace rondo::train

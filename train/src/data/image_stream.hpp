#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <rondo/train/dataset.hpp>
#include <rondo/train/image.hpp>
#include <rondo/train/loader.hpp>

#include "data/image_writer.hpp"

namespace rondo::train {

// Images of the set that could not be decoded. Used by all threads of a queue at once.
class BrokenList {
 public:
  // Is it new?
  bool add(std::int64_t image);
  [[nodiscard]] bool has(std::int64_t image);

 private:
  std::mutex mutex_;
  std::atomic<bool> empty_ = true;  // the usual case takes no lock
  std::set<std::int64_t> images_;
};

// One of the two sets: what becomes of an image between its file, or its place in memory, and its
// entry in a batch. Used by all threads of a queue at once.
class ImageStream {
 public:
  // All three are lent.
  ImageStream(const Dataset& dataset, const Images& images, const LoaderOptions& options);

  // The values of one image.
  [[nodiscard]] std::int64_t image() const noexcept { return image_; }
  // The shape of one image, with the number of images of the set.
  [[nodiscard]] const tensor::Shape& shape() const noexcept { return images_.shape; }
  [[nodiscard]] std::int32_t label_of(std::int64_t sample) const;

  // The result of writing a sample.
  struct Written {
    std::int32_t label = 0;
    bool is_stand_in = false;  // another image is in the place of a broken one
  };

  // Writes the rows and columns of `part` of a sample to `out`, normalised, and varied as in
  // `epoch` if there is one. `pixels` is memory for one image, for this thread alone.
  Written write(std::int64_t sample, std::optional<std::int64_t> epoch, const Box& part,
                std::vector<std::uint8_t>& pixels, float* out);

  // Where only some samples are wanted, does a rank need to read the others, too? It does where
  // broken images are skipped, because every rank needs the label of whatever stands in for one. An
  // image in memory is never broken.
  [[nodiscard]] bool reads_all_samples() const noexcept;

  // The augmentation that mixes images, if there is one.
  [[nodiscard]] const Augmentation* mixer() const;

 private:
  void normalise(const std::uint8_t* pixels, const Box& part, float* out) const;
  [[nodiscard]] const std::uint8_t* in_memory(std::int64_t sample) const;
  [[nodiscard]] const Augmentation* framer() const;
  [[nodiscard]] Framing framing_of(std::int64_t sample, std::optional<std::int64_t> epoch) const;
  std::int64_t read(std::int64_t sample, const Framing& frame, tensor::View<std::uint8_t> out);
  void note_broken(std::int64_t image, const std::string& problem);
  void read_from_memory(std::int64_t sample, const Framing& frame,
                        tensor::View<std::uint8_t> out) const;
  void vary(std::int64_t sample, std::int64_t epoch, tensor::View<std::uint8_t> image) const;

  const Images& images_;
  const LoaderOptions& options_;
  std::int64_t image_;
  ImageWriter writer_;
  std::vector<std::uint32_t> streams_;  // of random numbers, one per augmentation
  BrokenList broken_;
};

}  // namespace rondo::train

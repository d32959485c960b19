#include <rondo/train/loader.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "data/image_writer.hpp"
#include "data/prefetcher.hpp"
#include "data/random.hpp"

namespace rondo::train {
namespace {

constexpr std::int64_t widest_padding = 4096;

struct Buffer {
  std::vector<float> images = {};
  std::vector<std::int32_t> labels = {};

  void resize(std::int64_t samples, std::int64_t image) {
    images.resize(static_cast<std::size_t>(samples * image));
    labels.resize(static_cast<std::size_t>(samples));
  }

  [[nodiscard]] Batch batch(std::int64_t samples, std::int64_t image) const {
    return {.samples = samples,
            .images = std::span(images).first(static_cast<std::size_t>(samples * image)),
            .labels = std::span(labels).first(static_cast<std::size_t>(samples))};
  }
};

void require(bool fact, const char* what) {
  if (!fact) throw std::invalid_argument(std::string("loader: ") + what);
}

void check(const Images& images) {
  const tensor::Shape& shape = images.shape;
  require(shape.n >= 0 && shape.h > 0 && shape.w > 0 && shape.c > 0, "images have no extent");
  require(images.pixels.size() == static_cast<std::size_t>(shape.size()) &&
              images.labels.size() == static_cast<std::size_t>(shape.n),
          "shape, pixels and labels of the images do not agree");
}

const Dataset& checked(const Dataset& dataset, const LoaderOptions& options) {
  check(dataset.training);
  check(dataset.test);
  const tensor::Shape& shape = dataset.training.shape;
  require(dataset.test.shape.with_n(shape.n) == shape, "test images have another shape");
  const auto channels = static_cast<std::size_t>(shape.c);
  require(dataset.mean.size() == channels && dataset.stddev.size() == channels,
          "mean and stddev need one value per channel");
  require(options.global_batch >= 1, "the global batch begins at 1");
  require(options.largest_range >= 0, "the largest range is negative");
  require(options.crop_padding >= 0 && options.crop_padding <= widest_padding,
          "the padding of crops is negative or huge");
  for (const Augmentation& own : options.augmentations) {
    require(own.apply != nullptr, "an augmentation without a function");
    const auto same = [&](const Augmentation& other) { return other.name == own.name; };
    require(std::ranges::count_if(options.augmentations, same) == 1,
            "two augmentations have the same name");
  }
  return dataset;
}

}  // namespace

class Loader::Impl {
 public:
  Impl(const Dataset& dataset, const LoaderOptions& options)
      : dataset_(checked(dataset, options)),
        options_(options),
        image_(dataset.training.shape.image()),
        writer_(dataset.mean, dataset.stddev),
        order_(dataset.training.shape.n, options.seed),
        prefetcher_([this](const SampleRange& range, std::size_t buffer) {
          prepare(range, buffers_[buffer]);
        }) {
    const std::int64_t largest = std::min(options.largest_range, samples(0));
    for (Buffer& buffer : buffers_) buffer.resize(largest, image_);
    cut_.resize(static_cast<std::size_t>(image_));
    for (const Augmentation& own : options.augmentations) streams_.push_back(stream_of(own.name));
  }

  [[nodiscard]] std::int64_t steps() const noexcept {
    return (total() + options_.global_batch - 1) / options_.global_batch;
  }

  [[nodiscard]] std::int64_t samples(std::int64_t step) const noexcept {
    if (step < 0 || step >= steps()) return 0;
    return std::min(options_.global_batch, total() - step * options_.global_batch);
  }

  void prefetch(const SampleRange& range) {
    if (check(range) > 0) prefetcher_.announce(range);
  }

  Batch load(const SampleRange& range) {
    const std::int64_t count = check(range);
    if (count == 0) return {};
    return buffers_[prefetcher_.take(range)].batch(count, image_);
  }

  Batch load_test(std::int64_t first, std::int64_t last) {
    const Images& images = dataset_.test;
    require(0 <= first && first <= last && last <= images.shape.n,
            "the range lies outside the test set");
    if (static_cast<std::size_t>(last - first) > test_.labels.size()) {
      test_.resize(last - first, image_);
    }
    for (std::int64_t i = first; i < last; ++i) {
      write(pixels_of(images, i), test_, i - first);
      test_.labels[static_cast<std::size_t>(i - first)] = label_of(images, i);
    }
    return test_.batch(last - first, image_);
  }

 private:
  [[nodiscard]] std::int64_t total() const noexcept { return dataset_.training.shape.n; }

  std::int64_t check(const SampleRange& range) const {
    require(range.epoch >= 0 && range.step >= 0 && range.step < steps() && 0 <= range.first &&
                range.first <= range.last && range.last <= samples(range.step),
            "the range lies outside the epoch");
    require(range.last - range.first <= options_.largest_range,
            "the range is longer than largest_range");
    return range.last - range.first;
  }

  // On the prefetcher's thread, like everything of order_ and cut_.
  void prepare(const SampleRange& range, Buffer& buffer) {
    order_.begin(range.epoch);
    const std::int64_t start = range.step * options_.global_batch;
    for (std::int64_t i = range.first; i < range.last; ++i) {
      const std::int64_t sample = order_[start + i];
      const std::int64_t entry = i - range.first;
      write(augmented(range.epoch, sample), buffer, entry);
      buffer.labels[static_cast<std::size_t>(entry)] = label_of(dataset_.training, sample);
    }
  }

  // The pixels of a sample as it looks in this epoch, valid until the next call. What changes
  // nothing copies nothing.
  const std::uint8_t* augmented(std::int64_t epoch, std::int64_t sample) {
    const std::uint8_t* pixels = pixels_of(dataset_.training, sample);
    const Crop crop = draw_crop(epoch, sample);
    if (crop == Crop{} && streams_.empty()) return pixels;
    cut_image(pixels, dataset_.training.shape, crop, cut_.data());
    const tensor::View<std::uint8_t> image(cut_.data(), dataset_.training.shape.with_n(1));
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      SampleRandom random(options_.seed, epoch, sample, streams_[i]);
      options_.augmentations[i].apply(image, random);
    }
    return cut_.data();
  }

  [[nodiscard]] Crop draw_crop(std::int64_t epoch, std::int64_t sample) const {
    const auto key = static_cast<std::uint32_t>(epoch);
    const auto item = static_cast<std::uint64_t>(sample);
    Crop crop;
    if (options_.crop_padding > 0) {
      const std::array<std::uint32_t, 4> words = draw(options_.seed, key, item, Purpose::crop);
      const std::int64_t offsets = 2 * options_.crop_padding + 1;
      crop.top = words[0] % offsets - options_.crop_padding;
      crop.left = words[1] % offsets - options_.crop_padding;
    }
    if (options_.flip) crop.flip = (draw(options_.seed, key, item, Purpose::flip)[0] & 1) != 0;
    return crop;
  }

  [[nodiscard]] const std::uint8_t* pixels_of(const Images& images, std::int64_t sample) const {
    return images.pixels.data() + sample * image_;
  }

  static std::int32_t label_of(const Images& images, std::int64_t sample) {
    return images.labels[static_cast<std::size_t>(sample)];
  }

  void write(const std::uint8_t* pixels, Buffer& buffer, std::int64_t entry) const {
    const tensor::Shape& shape = dataset_.training.shape;
    writer_.write(pixels, shape.h * shape.w, buffer.images.data() + entry * image_);
  }

  const Dataset& dataset_;
  LoaderOptions options_;
  std::int64_t image_;  // values of one image
  ImageWriter writer_;
  EpochOrder order_;
  std::vector<std::uint8_t> cut_;       // one image that is being augmented
  std::vector<std::uint32_t> streams_;  // of random numbers, one per augmentation
  std::array<Buffer, 2> buffers_;
  Buffer test_;
  Prefetcher prefetcher_;  // last: its thread ends before what it uses
};

Loader::Loader(const Dataset& dataset, const LoaderOptions& options)
    : impl_(std::make_unique<Impl>(dataset, options)) {}
Loader::~Loader() = default;

std::int64_t Loader::steps() const noexcept { return impl_->steps(); }
std::int64_t Loader::samples(std::int64_t step) const noexcept { return impl_->samples(step); }
void Loader::prefetch(const SampleRange& range) { impl_->prefetch(range); }
Batch Loader::load(const SampleRange& range) { return impl_->load(range); }
Batch Loader::load_test(std::int64_t first, std::int64_t last) {
  return impl_->load_test(first, last);
}

}  // namespace rondo::train

#include <rondo/train/loader.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "data/draw.hpp"
#include "data/epoch_order.hpp"
#include "data/picture_writer.hpp"
#include "data/prefetcher.hpp"

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

void check(const Pictures& pictures) {
  const tensor::Shape& shape = pictures.shape;
  require(shape.n >= 0 && shape.h > 0 && shape.w > 0 && shape.c > 0, "pictures have no extent");
  require(pictures.pixels.size() == static_cast<std::size_t>(shape.size()) &&
              pictures.labels.size() == static_cast<std::size_t>(shape.n),
          "shape, pixels and labels of the pictures do not agree");
}

const Dataset& checked(const Dataset& dataset, const LoaderOptions& options) {
  check(dataset.training);
  check(dataset.test);
  const tensor::Shape& shape = dataset.training.shape;
  require(dataset.test.shape.with_n(shape.n) == shape, "test pictures have another shape");
  const auto channels = static_cast<std::size_t>(shape.c);
  require(dataset.mean.size() == channels && dataset.stddev.size() == channels,
          "mean and stddev need one value per channel");
  require(options.global_batch >= 1, "the global batch begins at 1");
  require(options.largest_range >= 0, "the largest range is negative");
  require(options.crop_padding >= 0 && options.crop_padding <= widest_padding,
          "the padding of crops is negative or huge");
  return dataset;
}

}  // namespace

class Loader::Impl {
 public:
  Impl(const Dataset& dataset, const LoaderOptions& options)
      : dataset_(checked(dataset, options)),
        options_(options),
        image_(dataset.training.shape.image()),
        writer_(dataset.training.shape, dataset.mean, dataset.stddev),
        order_(dataset.training.shape.n, options.seed),
        prefetcher_([this](const SampleRange& range, std::size_t buffer) {
          prepare(range, buffers_[buffer]);
        }) {
    const std::int64_t largest = std::min(options.largest_range, samples(0));
    for (Buffer& buffer : buffers_) buffer.resize(largest, image_);
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
    const Pictures& pictures = dataset_.test;
    require(0 <= first && first <= last && last <= pictures.shape.n,
            "the range lies outside the test set");
    if (static_cast<std::size_t>(last - first) > test_.labels.size()) {
      test_.resize(last - first, image_);
    }
    for (std::int64_t i = first; i < last; ++i) write(pictures, i, {}, test_, i - first);
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

  // On the prefetcher's thread, like everything of order_.
  void prepare(const SampleRange& range, Buffer& buffer) {
    order_.begin(range.epoch);
    const std::int64_t start = range.step * options_.global_batch;
    for (std::int64_t i = range.first; i < range.last; ++i) {
      const std::int64_t sample = order_[start + i];
      write(dataset_.training, sample, draw_crop(range.epoch, sample), buffer, i - range.first);
    }
  }

  [[nodiscard]] Crop draw_crop(std::int64_t epoch, std::int64_t sample) const {
    const auto key = static_cast<std::uint32_t>(epoch);
    const auto item = static_cast<std::uint64_t>(sample);
    Crop crop;
    if (options_.crop_padding > 0) {
      const std::array<std::uint32_t, 4> words = draw(options_.seed, key, item, Purpose::crop);
      const std::int64_t places = 2 * options_.crop_padding + 1;
      crop.top = words[0] % places - options_.crop_padding;
      crop.left = words[1] % places - options_.crop_padding;
    }
    if (options_.flip) crop.flip = (draw(options_.seed, key, item, Purpose::flip)[0] & 1) != 0;
    return crop;
  }

  void write(const Pictures& pictures, std::int64_t sample, const Crop& crop, Buffer& buffer,
             std::int64_t place) const {
    writer_.write(pictures.pixels.data() + sample * image_, crop,
                  buffer.images.data() + place * image_);
    buffer.labels[static_cast<std::size_t>(place)] =
        pictures.labels[static_cast<std::size_t>(sample)];
  }

  const Dataset& dataset_;
  LoaderOptions options_;
  std::int64_t image_;  // values of one picture
  PictureWriter writer_;
  EpochOrder order_;
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

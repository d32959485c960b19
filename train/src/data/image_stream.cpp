// An image on its way into a batch: read from its file or from memory, varied, and normalised.
//
// What it looks like is a function of (seed, epoch, sample) alone, so it does not matter which
// thread of which rank does it, or when. An image that cannot be decoded is an error, or the next
// one of the set stands in for it.

#include "data/image_stream.hpp"

#include <algorithm>
#include <cstddef>

#include "data/dataset_type.hpp"
#include "data/random.hpp"

namespace rondo::train {
namespace {

// So many broken images in a row are no accident.
constexpr std::int64_t most_broken = 1000;

}  // namespace

bool BrokenList::add(std::int64_t image) {
  const std::lock_guard lock(mutex_);
  empty_.store(false, std::memory_order_release);
  return images_.insert(image).second;
}

bool BrokenList::has(std::int64_t image) {
  if (empty_.load(std::memory_order_acquire)) return false;
  const std::lock_guard lock(mutex_);
  return images_.contains(image);
}

ImageStream::ImageStream(const Dataset& dataset, const Images& images, const LoaderOptions& options)
    : images_(images),
      options_(options),
      image_(images.shape.image()),
      writer_(dataset.mean, dataset.stddev) {
  for (const Augmentation& one : options.augmentations) streams_.push_back(stream_of(one.name));
}

std::int32_t ImageStream::label_of(std::int64_t sample) const {
  return images_.labels[static_cast<std::size_t>(sample)];
}

ImageStream::Written ImageStream::write(std::int64_t sample, std::optional<std::int64_t> epoch,
                                        const Box& part, std::vector<std::uint8_t>& pixels,
                                        float* out) {
  // The fast way: images in memory that nothing changes are normalised where they lie.
  const bool varied = epoch && !streams_.empty();
  if (!images_.source && !varied) {
    normalise(in_memory(sample), part, out);
    return {.label = label_of(sample)};
  }
  pixels.resize(static_cast<std::size_t>(image_));
  const tensor::View<std::uint8_t> image(pixels.data(), images_.shape.with_n(1));
  const std::int64_t used = read(sample, framing_of(sample, epoch), image);
  if (varied) vary(sample, *epoch, image);
  normalise(pixels.data(), part, out);
  return {.label = label_of(used), .is_stand_in = used != sample};
}

bool ImageStream::reads_all_samples() const noexcept {
  return images_.source && options_.broken == BrokenImages::skip;
}

const Augmentation* ImageStream::mixer() const {
  const auto mixes = [](const Augmentation& one) { return one.mix != nullptr; };
  const auto found = std::ranges::find_if(options_.augmentations, mixes);
  return found == options_.augmentations.end() ? nullptr : &*found;
}

void ImageStream::normalise(const std::uint8_t* pixels, const Box& part, float* out) const {
  const tensor::Shape& shape = images_.shape;
  // Whole rows follow each other.
  const bool whole_rows = part.w == Range{0, shape.w};
  const std::int64_t runs = whole_rows ? 1 : part.h.size();
  const std::int64_t run = whole_rows ? part.h.size() * shape.w : part.w.size();
  const std::uint8_t* const first = pixels + (part.h.first * shape.w + part.w.first) * shape.c;
  for (std::int64_t i = 0; i < runs; ++i) {
    writer_.write(first + i * shape.w * shape.c, run, out + i * run * shape.c);
  }
}

const std::uint8_t* ImageStream::in_memory(std::int64_t sample) const {
  return images_.pixels.data() + sample * image_;
}

// The augmentation that chooses a part of the original, if there is one.
const Augmentation* ImageStream::framer() const {
  const auto frames = [](const Augmentation& one) { return one.frame != nullptr; };
  const auto found = std::ranges::find_if(options_.augmentations, frames);
  return found == options_.augmentations.end() ? nullptr : &*found;
}

// Images in memory are whole where no augmentation wants a part: then it is empty.
Framing ImageStream::framing_of(std::int64_t sample, std::optional<std::int64_t> epoch) const {
  // Test images are never varied: they get the centre.
  const Augmentation* const own = epoch ? framer() : nullptr;
  if (own != nullptr) {
    return [this, own, sample, epoch](std::int64_t height, std::int64_t width) {
      SampleRandom random(options_.seed, *epoch, sample, stream_of(own->name));
      return own->frame(height, width, random);
    };
  }
  if (!images_.source) return {};
  return [this](std::int64_t height, std::int64_t width) {
    return centre_window(height, width, options_.centre_crop, images_.shape.h, images_.shape.w);
  };
}

// Reads the sample, or what stands in for it; returns which one it was. The next one of the set
// stands in: every rank that meets the broken image finds the same one, and no step is shorter.
std::int64_t ImageStream::read(std::int64_t sample, const Framing& frame,
                               tensor::View<std::uint8_t> out) {
  if (!images_.source) {
    read_from_memory(sample, frame, out);
    return sample;
  }
  for (std::int64_t next = sample, tries = 0;; next = (next + 1) % images_.shape.n, ++tries) {
    // Images that are known to be broken are not decoded again in every epoch. Where an epoch has
    // parts of its own, a part may be whole: to rely on what was seen before would make the
    // images depend on which rank saw it. `tries` ends the search where all images are broken.
    if (framer() == nullptr && broken_.has(next) && tries < images_.shape.n) continue;
    try {
      images_.source->read(next, frame, out);
      return next;
    } catch (const UnreadableFile&) {
      throw;  // ranks on other hosts may read it, and would train with another image
    } catch (const DataError& error) {
      if (options_.broken == BrokenImages::refuse) {
        throw DataError(std::string(error.what()) + ", or set data.broken = \"skip\"");
      }
      note_broken(next, error.what());
      if (tries < std::min(most_broken, images_.shape.n - 1)) continue;
      throw DataError(std::string(error.what()) +
                      "; it is the last of too many broken images in a row");
    }
  }
}

void ImageStream::note_broken(std::int64_t image, const std::string& problem) {
  const bool is_new = broken_.add(image);
  if (is_new && options_.on_broken) options_.on_broken(problem);
}

void ImageStream::read_from_memory(std::int64_t sample, const Framing& frame,
                                   tensor::View<std::uint8_t> out) const {
  const tensor::Shape& shape = out.shape;
  if (frame) {
    resample({in_memory(sample), shape}, frame(shape.h, shape.w), out);
  } else {
    std::copy_n(in_memory(sample), image_, out.data);
  }
}

// In the order of the configuration. Each has a stream of random numbers of its own, so that one
// more augmentation changes none of the others.
void ImageStream::vary(std::int64_t sample, std::int64_t epoch,
                       tensor::View<std::uint8_t> image) const {
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    const Augmentation& one = options_.augmentations[i];
    if (!one.apply) continue;
    SampleRandom random(options_.seed, epoch, sample, streams_[i]);
    one.apply(image, random);
  }
}

}  // namespace rondo::train

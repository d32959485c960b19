// Images made of random numbers, in integers only: the same on every machine.
//
// Each class has a pattern, smooth and random; an image is the pattern of its class, shifted,
// dimmed, and with noise on every pixel. So a small network can learn it in a few epochs. Training
// and test images are drawn from different streams.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include <rondo/train/dataset.hpp>

#include "data/dataset_type.hpp"
#include "data/random.hpp"

namespace rondo::train {
namespace {

constexpr std::int64_t knots = 6;           // of a pattern, along height and width
constexpr std::int64_t unit = 256;          // fixed point: 1.0
constexpr std::int64_t darkest = 128;       // of 256: how far an image is dimmed
constexpr std::int64_t shift_divisor = 10;  // shifts are up to this part of height and width
constexpr std::int64_t noise_span = 255;    // grey levels

// Which streams of random numbers the two sets use.
constexpr std::uint32_t training_set = 0;
constexpr std::uint32_t test_set = 1;

// One grey level of an image whose values at knots x knots points are random, and linear between.
class Pattern {
 public:
  Pattern(std::uint64_t seed, std::int64_t first_plane)
      : seed_(seed), first_plane_(static_cast<std::uint64_t>(first_plane)) {}

  // 0 <= y, x < unit are positions from one border to the other.
  [[nodiscard]] std::int64_t at(std::int64_t channel, std::int64_t y, std::int64_t x) const {
    const std::int64_t row = y * (knots - 1) / unit;
    const std::int64_t column = x * (knots - 1) / unit;
    const std::int64_t below = y * (knots - 1) % unit;
    const std::int64_t right = x * (knots - 1) % unit;
    const std::int64_t upper =
        knot(channel, row, column) * (unit - right) + knot(channel, row, column + 1) * right;
    const std::int64_t lower = knot(channel, row + 1, column) * (unit - right) +
                               knot(channel, row + 1, column + 1) * right;
    return (upper * (unit - below) + lower * below) / (unit * unit);
  }

 private:
  [[nodiscard]] std::int64_t knot(std::int64_t channel, std::int64_t row,
                                  std::int64_t column) const {
    // Each channel of each class is a plane of its own.
    const std::uint64_t plane = first_plane_ + static_cast<std::uint64_t>(channel);
    const auto index = static_cast<std::uint64_t>(row * knots + column);
    return draw(seed_, 0, plane * knots * knots + index, Purpose::pattern)[0] % unit;
  }

  std::uint64_t seed_;
  std::uint64_t first_plane_;
};

// The patterns of all classes, as images.
std::vector<std::uint8_t> draw_patterns(const SyntheticOptions& options) {
  const tensor::Shape& shape = options.shape;
  std::vector<std::uint8_t> patterns;
  patterns.reserve(static_cast<std::size_t>(options.classes * shape.image()));
  for (std::int64_t label = 0; label < options.classes; ++label) {
    const Pattern pattern(options.seed, label * shape.c);
    for (std::int64_t y = 0; y < shape.h; ++y) {
      for (std::int64_t x = 0; x < shape.w; ++x) {
        for (std::int64_t c = 0; c < shape.c; ++c) {
          patterns.push_back(
              static_cast<std::uint8_t>(pattern.at(c, y * unit / shape.h, x * unit / shape.w)));
        }
      }
    }
  }
  return patterns;
}

// Random bytes, one after the other.
class NoiseBytes {
 public:
  NoiseBytes(std::uint64_t seed, std::uint32_t set, std::uint64_t first_block)
      : seed_(seed), set_(set), block_(first_block) {}

  std::int64_t next() {
    if (left_ == 0) {
      words_ = draw(seed_, set_, block_++, Purpose::noise);
      left_ = 16;
    }
    --left_;
    return (words_[left_ / 4] >> (8 * (left_ % 4))) & 0xff;
  }

 private:
  std::uint64_t seed_;
  std::uint32_t set_;
  std::uint64_t block_;
  std::array<std::uint32_t, 4> words_ = {};
  unsigned left_ = 0;
};

// How one image differs from its class's pattern.
struct Placement {
  std::int64_t down;
  std::int64_t right;
  std::int64_t light;  // of `unit`
};

Placement draw_placement(const SyntheticOptions& options, std::uint32_t set, std::int64_t image) {
  const auto words = draw(options.seed, set, static_cast<std::uint64_t>(image), Purpose::placement);
  const auto shift = [](std::uint32_t word, std::int64_t extent) {
    const std::int64_t most = extent / shift_divisor;
    return word % (2 * most + 1) - most;
  };
  return {shift(words[0], options.shape.h), shift(words[1], options.shape.w),
          darkest + words[2] % (unit - darkest)};
}

// Outside of the shifted pattern an image is black, but for the noise.
void write_image(const tensor::Shape& shape, const std::uint8_t* pattern,
                 const Placement& placement, NoiseBytes& noise, std::uint8_t* out) {
  for (std::int64_t y = 0; y < shape.h; ++y) {
    const std::int64_t from_y = y - placement.down;
    for (std::int64_t x = 0; x < shape.w; ++x) {
      const std::int64_t from_x = x - placement.right;
      const bool inside = from_y >= 0 && from_y < shape.h && from_x >= 0 && from_x < shape.w;
      for (std::int64_t c = 0; c < shape.c; ++c) {
        const std::int64_t light =
            inside ? pattern[(from_y * shape.w + from_x) * shape.c + c] * placement.light / unit
                   : 0;
        const std::int64_t grain = (noise.next() - unit / 2) * noise_span / unit;
        *out++ = static_cast<std::uint8_t>(std::clamp<std::int64_t>(light + grain, 0, 255));
      }
    }
  }
}

Images draw_images(const SyntheticOptions& options, const std::vector<std::uint8_t>& patterns,
                   std::uint32_t set, std::int64_t count) {
  Images images;
  images.shape = options.shape.with_n(count);
  images.pixels.resize(static_cast<std::size_t>(images.shape.size()));
  images.labels.reserve(static_cast<std::size_t>(count));
  const std::int64_t image = options.shape.image();
  const std::int64_t blocks = (image + 15) / 16;
  for (std::int64_t i = 0; i < count; ++i) {
    // Classes in turn: every class has the same number of images, up to one.
    const std::int64_t label = i % options.classes;
    // An image's noise begins at a block that follows from its number, so that images could be
    // drawn in any order.
    NoiseBytes noise(options.seed, set, static_cast<std::uint64_t>(i * blocks));
    write_image(options.shape, patterns.data() + label * image, draw_placement(options, set, i),
                noise, images.pixels.data() + i * image);
    images.labels.push_back(static_cast<std::int32_t>(label));
  }
  return images;
}

void check(const SyntheticOptions& options) {
  const tensor::Shape& shape = options.shape;
  if (shape.h < 1 || shape.w < 1 || shape.c < 1 || options.classes < 1 || options.training < 1 ||
      options.test < 1) {
    throw std::invalid_argument("synthetic: extents, classes and numbers of images begin at 1");
  }
}

}  // namespace

Dataset make_synthetic(const SyntheticOptions& options) {
  check(options);
  const std::vector<std::uint8_t> patterns = draw_patterns(options);
  Dataset dataset;
  dataset.name = "synthetic";
  dataset.classes = options.classes;
  dataset.training = draw_images(options, patterns, training_set, options.training);
  dataset.test = draw_images(options, patterns, test_set, options.test);
  measure_normalisation(dataset);
  return dataset;
}

namespace {

DatasetShape synthetic_shape(const Experiment::Data& data) {
  if (data.shape.empty()) return {.classes = data.classes};
  if (data.shape.size() != 3) throw ConfigError("data.shape: must be [height, width, channels]");
  return {.image = {1, data.shape[0], data.shape[1], data.shape[2]}, .classes = data.classes};
}

Dataset load_synthetic(const Experiment::Data& data, const DatasetShape& shape) {
  return make_synthetic({.shape = shape.image,
                         .classes = shape.classes,
                         .training = data.training,
                         .test = data.test});
}

}  // namespace

const DatasetType synthetic = {
    .name = "synthetic", .shape = synthetic_shape, .load = load_synthetic};

}  // namespace rondo::train

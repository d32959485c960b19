// The augmentations that a configuration can name. Each is a AugmentationKind in the list below:
// its name, its numbers with their defaults and limits, and a function that makes an Augmentation
// of them. All random numbers come from the SampleRandom that apply() or frame() gets, so that a
// sample looks the same whichever rank prepares it.

#include "data/augmentations.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "data/prefetch_queue.hpp"
#include "model/names.hpp"

namespace rondo::train {

void shift_image(tensor::View<std::uint8_t> image, std::int64_t down, std::int64_t right) {
  const tensor::Shape& shape = image.shape;
  const std::int64_t row = shape.w * shape.c;
  const std::int64_t shift = std::clamp<std::int64_t>(right, -shape.w, shape.w) * shape.c;
  const std::int64_t kept = row - std::abs(shift);
  // Rows are written in an order in which none is read after it was written.
  for (std::int64_t i = 0; i < shape.h; ++i) {
    const std::int64_t y = down >= 0 ? i : shape.h - 1 - i;
    std::uint8_t* out = image.data + y * row;
    const std::int64_t from = y + down;
    if (from < 0 || from >= shape.h) {
      std::fill_n(out, row, std::uint8_t{0});
      continue;
    }
    const std::uint8_t* in = image.data + from * row;
    std::memmove(out + std::max<std::int64_t>(-shift, 0), in + std::max<std::int64_t>(shift, 0),
                 static_cast<std::size_t>(kept));
    std::fill_n(shift >= 0 ? out + kept : out, std::abs(shift), std::uint8_t{0});
  }
}

void mirror_image(tensor::View<std::uint8_t> image) {
  const tensor::Shape& shape = image.shape;
  for (std::int64_t y = 0; y < shape.h; ++y) {
    std::uint8_t* left = image.data + y * shape.w * shape.c;
    std::uint8_t* right = left + (shape.w - 1) * shape.c;
    // Pixels are exchanged, not bytes: the channels of a pixel keep their order.
    for (; left < right; left += shape.c, right -= shape.c) {
      std::swap_ranges(left, left + shape.c, right);
    }
  }
}

namespace {

using Numbers = std::vector<double>;

// The nearest value that a pixel can have.
std::uint8_t pixel_of(double value) {
  return static_cast<std::uint8_t>(std::clamp<std::int64_t>(std::llround(value), 0, 255));
}

// As usual for CIFAR (He et al. 2016): a window of the image's size out of the image with so many
// zeros on each side.
Augmentation make_crop(const Numbers& numbers, std::span<const float>) {
  const auto padding = static_cast<std::int64_t>(numbers[0]);
  return {.apply = [padding](tensor::View<std::uint8_t> image, SampleRandom& random) {
    const std::int64_t down = random.below(2 * padding + 1) - padding;
    const std::int64_t right = random.below(2 * padding + 1) - padding;
    if (down != 0 || right != 0) shift_image(image, down, right);
  }};
}

Augmentation make_flip(const Numbers&, std::span<const float>) {
  return {.apply = [](tensor::View<std::uint8_t> image, SampleRandom& random) {
    if (random.below(2) == 1) mirror_image(image);
  }};
}

// Szegedy et al., "Going deeper with convolutions", 2015: a share of the area, and a relation of
// the sides between 3/4 and 4/3, whose logarithm is uniform.
ImageWindow random_window(std::int64_t height, std::int64_t width, const Numbers& shares,
                          SampleRandom& random) {
  const auto down = static_cast<double>(height);
  const auto right = static_cast<double>(width);
  const double widest = std::log(4.0 / 3.0);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double area = down * right * (shares[0] + (shares[1] - shares[0]) * random.unit());
    const double relation = std::exp(widest * (2.0 * random.unit() - 1.0));
    const double window_width = std::round(std::sqrt(area * relation));
    const double window_height = std::round(std::sqrt(area / relation));
    if (window_width < 1.0 || window_height < 1.0) continue;
    if (window_width > right || window_height > down) continue;
    return {.top = std::floor(random.unit() * (down - window_height + 1.0)),
            .left = std::floor(random.unit() * (right - window_width + 1.0)),
            .height = window_height,
            .width = window_width};
  }
  // Very long images have no such window: the largest square in the middle.
  return centre_window(height, width, 1.0, 1, 1);
}

Augmentation make_random_resized_crop(const Numbers& numbers, std::span<const float>) {
  return {.frame = [numbers](std::int64_t height, std::int64_t width, SampleRandom& random) {
    return random_window(height, width, numbers, random);
  }};
}

// A value of `pixel` as seen by the eye (ITU-R BT.601).
double lightness(const std::uint8_t* pixel) {
  return 0.299 * pixel[0] + 0.587 * pixel[1] + 0.114 * pixel[2];
}

// Brightness, contrast, saturation, in this order, each by a factor around 1. The three are linear
// in a pixel, its grey and the mean grey, so that one pass over the pixels does them all.
void jitter(tensor::View<std::uint8_t> image, const std::array<double, 3>& factors) {
  const auto [brightness, contrast, saturation] = factors;
  const std::int64_t pixels = image.shape.h * image.shape.w;
  const std::int64_t channels = image.shape.c;
  const auto grey = [channels](const std::uint8_t* pixel) {
    return channels == 3 ? lightness(pixel) : static_cast<double>(pixel[0]);
  };
  double sum = 0.0;
  for (std::int64_t i = 0; i < pixels; ++i) sum += grey(image.data + i * channels);
  const double mean = brightness * sum / static_cast<double>(pixels);
  for (std::int64_t i = 0; i < pixels; ++i) {
    std::uint8_t* pixel = image.data + i * channels;
    // pixel' = contrast (brightness (saturation pixel + (1 - saturation) grey)) + (1 - contrast)
    // mean, with the mean grey of the brightened image.
    const double base = brightness * (1.0 - saturation) * grey(pixel);
    for (std::int64_t c = 0; c < channels; ++c) {
      const double coloured =
          channels == 3 ? base + brightness * saturation * pixel[c] : brightness * pixel[c];
      pixel[c] = pixel_of(contrast * coloured + (1.0 - contrast) * mean);
    }
  }
}

Augmentation make_color_jitter(const Numbers& numbers, std::span<const float>) {
  return {.apply = [numbers](tensor::View<std::uint8_t> image, SampleRandom& random) {
    std::array<double, 3> factors = {};
    for (std::size_t i = 0; i < factors.size(); ++i) {
      factors[i] = 1.0 + numbers[i] * (2.0 * random.unit() - 1.0);
    }
    jitter(image, factors);
  }};
}

// Devries, Taylor, "Improved regularization of convolutional neural networks with cutout", 2017: a
// square around a random pixel gets the mean colour, which normalisation makes zero.
Augmentation make_cutout(const Numbers& numbers, std::span<const float> mean) {
  const auto side = static_cast<std::int64_t>(numbers[0]);
  std::vector<std::uint8_t> colour;
  for (const float value : mean) colour.push_back(pixel_of(255.0 * value));
  return {.apply = [side, colour](tensor::View<std::uint8_t> image, SampleRandom& random) {
    const tensor::Shape& shape = image.shape;
    if (std::cmp_not_equal(colour.size(), shape.c)) {
      throw std::invalid_argument("cutout: the mean has one number for each channel of an image");
    }
    const std::int64_t top = random.below(shape.h) - side / 2;
    const std::int64_t left = random.below(shape.w) - side / 2;
    for (std::int64_t y = std::max<std::int64_t>(top, 0); y < std::min(top + side, shape.h); ++y) {
      for (std::int64_t x = std::max<std::int64_t>(left, 0); x < std::min(left + side, shape.w);
           ++x) {
        std::ranges::copy(colour, image.data + (y * shape.w + x) * shape.c);
      }
    }
  }};
}

// A number with the distribution Beta(alpha, alpha), by Joehnk, 1964: of two uniform numbers to the
// power 1 / alpha, whose sum is at most 1, the first one's share in the sum. In logarithms, because
// a small alpha makes the powers too small for a number.
double draw_beta(double alpha, SampleRandom& random) {
  for (;;) {
    const double first = std::log(1.0 - random.unit()) / alpha;
    const double second = std::log(1.0 - random.unit()) / alpha;
    const double larger = std::max(first, second);
    const double sum = std::exp(first - larger) + std::exp(second - larger);
    if (larger + std::log(sum) <= 0.0) return std::exp(first - larger) / sum;
  }
}

// Zhang et al., "mixup: beyond empirical risk minimization", 2018. As in timm, a batch has one
// share, and an image's partner is the one at the mirrored place of the batch.
Augmentation make_mixup(const Numbers& numbers, std::span<const float>) {
  const double alpha = numbers[0];
  return {.mix = [alpha](SampleRandom& random) {
    return alpha > 0.0 ? draw_beta(alpha, random) : 1.0;
  }};
}

struct AugmentationKind {
  std::string_view name;
  Numbers usual;  // the numbers behind its name, if none are given
  double least;   // of each
  double most;
  bool whole;  // are they integers?
  Augmentation (*make)(const Numbers& numbers, std::span<const float> mean);
};

// The one list of augmentations.
const std::vector<AugmentationKind>& augmentation_kinds() {
  static const std::vector<AugmentationKind> list = {
      {"crop", {4}, 0, 4096, true, make_crop},
      {"flip", {}, 0, 0, false, make_flip},
      {"random_resized_crop", {0.08, 1.0}, 1e-4, 1, false, make_random_resized_crop},
      {"color_jitter", {0.4, 0.4, 0.4}, 0, 1, false, make_color_jitter},
      {"cutout", {8}, 1, 4096, true, make_cutout},
      {"mixup", {0.2}, 0, 4, false, make_mixup},
  };
  return list;
}

const AugmentationKind* find_augmentation(std::string_view text) {
  const auto found =
      std::ranges::find(augmentation_kinds(), augmentation_name(text), &AugmentationKind::name);
  return found == augmentation_kinds().end() ? nullptr : &*found;
}

// The numbers behind the colon, separated by commas; empty when one is not a number.
Numbers read_numbers(std::string_view text) {
  Numbers numbers;
  const char* begin = text.data();
  const char* const end = begin + text.size();
  while (begin != end) {
    double number = 0.0;
    const auto [next, error] = std::from_chars(begin, end, number);
    if (error != std::errc{} || (next != end && (*next != ',' || next + 1 == end))) return {};
    numbers.push_back(number);
    begin = next == end ? end : next + 1;
  }
  return numbers;
}

Numbers numbers_of(std::string_view text, const AugmentationKind& kind) {
  const std::size_t colon = text.find(':');
  return colon == std::string_view::npos ? kind.usual : read_numbers(text.substr(colon + 1));
}

}  // namespace

std::string_view augmentation_name(std::string_view text) { return text.substr(0, text.find(':')); }

std::string complaint_about_augmentation(std::string_view text) {
  const AugmentationKind* kind = find_augmentation(text);
  if (kind == nullptr) {
    std::vector<std::string> names;
    for (const AugmentationKind& known : augmentation_kinds()) names.emplace_back(known.name);
    return fmt::format("no such augmentation; {}", suggest(augmentation_name(text), names));
  }
  const Numbers numbers = numbers_of(text, *kind);
  if (numbers.size() != kind->usual.size() ||
      (numbers.empty() && augmentation_name(text) != text)) {
    const std::size_t wanted = kind->usual.size();
    if (wanted == 0) return fmt::format("{} takes no numbers", kind->name);
    return fmt::format("{} takes {} number{}", kind->name, wanted,
                       wanted == 1 ? "" : "s, separated by commas");
  }
  for (const double number : numbers) {
    if (!(number >= kind->least && number <= kind->most) ||
        (kind->whole && number != std::floor(number))) {
      return fmt::format("{} is impossible; must be {}in [{}, {}]", number,
                         kind->whole ? "an integer " : "", kind->least, kind->most);
    }
  }
  // A share of the area from ... to ...; other kinds have independent numbers.
  if (!std::ranges::is_sorted(numbers) && kind->make == make_random_resized_crop) {
    return "the first number must not be greater than the second";
  }
  return {};
}

Augmentation make_augmentation(std::string_view text, std::span<const float> mean) {
  // A configuration has been checked already; a program may pass any text.
  const std::string problem = complaint_about_augmentation(text);
  if (!problem.empty()) {
    throw std::invalid_argument(fmt::format("augmentation \"{}\": {}", text, problem));
  }
  const AugmentationKind& kind = *find_augmentation(text);
  Augmentation augmentation = kind.make(numbers_of(text, kind), mean);
  // Without its numbers: the name chooses the stream of random numbers, so that crop:4 and crop:8
  // draw the same random numbers.
  augmentation.name = kind.name;
  return augmentation;
}

namespace {

// An original in memory is resampled, which has kernels for so many channels. A source of a program
// chooses the part by itself.
void expect_channels(const Augmentation& augmentation, const Images& images) {
  constexpr std::int64_t most_channels = 4;
  const std::int64_t channels = images.shape.c;
  if (!augmentation.frame || images.source || channels <= most_channels) return;
  throw ConfigError(fmt::format(
      "data.augment: {} is for images of 1 to {} channels, and these have {}; leave it out",
      augmentation.name, most_channels, channels));
}

}  // namespace

LoaderOptions loader_options(const Experiment& experiment, const Dataset& dataset) {
  const Experiment::Data& data = experiment.data;
  LoaderOptions options{.global_batch = experiment.train.global_batch,
                        .seed = static_cast<std::uint64_t>(experiment.train.seed),
                        .centre_crop = data.centre_crop,
                        .decoders = static_cast<int>(data.decoders),
                        .decoder_cpus = read_cpu_list(data.decoder_cpus),
                        .broken = data.broken};
  for (const std::string& text : data.augment) {
    options.augmentations.push_back(make_augmentation(text, dataset.mean));
    expect_channels(options.augmentations.back(), dataset.training);
  }
  return options;
}

}  // namespace rondo::train

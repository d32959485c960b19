// Changes the size of an image, in two passes: columns, then rows. A new pixel is the weighted mean
// of the old ones around its place; the weights fall linearly to zero at the distance of one pixel,
// of the new image where it is smaller than the window, else of the old one. This is what Pillow
// and torchvision (with antialias) call bilinear. Weights and sums are integers, so that all
// machines get the same pixels.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include <rondo/train/image.hpp>

namespace rondo::train {
namespace {

constexpr int weight_bits = 16;
constexpr std::int32_t one = 1 << weight_bits;
constexpr std::int32_t half = one / 2;

// For each new pixel of a line: the first old pixel that has a part in it, and all weights.
struct Weights {
  std::int64_t taps = 0;
  std::vector<std::int64_t> first = {};
  std::vector<std::int32_t> values = {};  // `taps` of each new pixel, zero behind the last one

  [[nodiscard]] const std::int32_t* of(std::int64_t pixel) const {
    return values.data() + pixel * taps;
  }
};

// Brings the weights of one new pixel to a sum of exactly one: what rounding has left goes to the
// largest weight.
void write_weights(const std::vector<double>& shares, std::int32_t* out) {
  double sum = 0.0;
  for (const double share : shares) sum += share;
  std::int32_t left = one;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    out[i] = static_cast<std::int32_t>(std::lround(shares[i] / sum * one));
    left -= out[i];
  }
  *std::max_element(out, out + shares.size()) += left;
}

// `begin` and `extent` are the window on a line of `pixels` old pixels.
Weights make_weights(double begin, double extent, std::int64_t pixels, std::int64_t count) {
  const double scale = extent / static_cast<double>(count);
  const double reach = std::max(scale, 1.0);
  // No pixel outside of the window takes part, as if it had been cut out before.
  const auto least = std::clamp<std::int64_t>(std::llround(std::floor(begin)), 0, pixels - 1);
  const auto most =
      std::clamp<std::int64_t>(std::llround(std::ceil(begin + extent)), least + 1, pixels);
  Weights weights{.taps = 2 * static_cast<std::int64_t>(std::ceil(reach)) + 1};
  weights.values.resize(static_cast<std::size_t>(count * weights.taps));
  std::vector<double> shares;
  for (std::int64_t i = 0; i < count; ++i) {
    const double centre = begin + (static_cast<double>(i) + 0.5) * scale;
    const auto first =
        std::clamp<std::int64_t>(std::llround(std::floor(centre - reach + 0.5)), least, most - 1);
    const auto last =
        std::clamp<std::int64_t>(std::llround(std::floor(centre + reach + 0.5)), first + 1, most);
    shares.clear();
    for (std::int64_t old = first; old < std::min(last, first + weights.taps); ++old) {
      const double distance = std::abs(static_cast<double>(old) + 0.5 - centre) / reach;
      shares.push_back(std::max(1.0 - distance, 1e-6));
    }
    weights.first.push_back(first);
    write_weights(shares, weights.values.data() + i * weights.taps);
  }
  return weights;
}

std::uint8_t rounded(std::int32_t sum) {
  return static_cast<std::uint8_t>((sum + half) >> weight_bits);
}

// A row of old pixels becomes a row of new ones. Weights behind the last one are zero, but there
// may be no pixel for them at the end of the row.
template <int channels>
void resample_row(const std::uint8_t* in, std::int64_t pixels, const Weights& weights,
                  std::int64_t count, std::uint8_t* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t first = weights.first[static_cast<std::size_t>(i)];
    const std::int64_t taps = std::min(weights.taps, pixels - first);
    const std::int32_t* weight = weights.of(i);
    const std::uint8_t* pixel = in + first * channels;
    std::int32_t sums[channels] = {};
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      for (int c = 0; c < channels; ++c) sums[c] += weight[tap] * *pixel++;
    }
    for (int c = 0; c < channels; ++c) *out++ = rounded(sums[c]);
  }
}

using RowFunction = void (*)(const std::uint8_t*, std::int64_t, const Weights&, std::int64_t,
                             std::uint8_t*);

RowFunction row_function(std::int64_t channels) {
  switch (channels) {
    case 1:
      return resample_row<1>;
    case 2:
      return resample_row<2>;
    case 3:
      return resample_row<3>;
    case 4:
      return resample_row<4>;
    default:
      throw std::invalid_argument("resample: an image must have 1 to 4 channels");
  }
}

// What a thread needs while it resamples one image; kept for the next one.
struct Scratch {
  std::vector<std::uint8_t> rows = {};
  std::vector<std::int32_t> sums = {};
};

}  // namespace

void resample(tensor::View<const std::uint8_t> image, const ImageWindow& window,
              tensor::View<std::uint8_t> out) {
  if (image.shape.c != out.shape.c || image.shape.size() == 0 || out.shape.size() == 0) {
    throw std::invalid_argument("resample: the images have no pixels, or other channels");
  }
  const RowFunction resample_one = row_function(image.shape.c);
  const Weights columns = make_weights(window.left, window.width, image.shape.w, out.shape.w);
  const Weights lines = make_weights(window.top, window.height, image.shape.h, out.shape.h);
  const std::int64_t first_row = lines.first.front();
  const std::int64_t last_row = std::min(lines.first.back() + lines.taps, image.shape.h);
  const std::int64_t row = out.shape.w * out.shape.c;

  thread_local Scratch scratch;
  scratch.rows.resize(static_cast<std::size_t>((last_row - first_row) * row));
  for (std::int64_t y = first_row; y < last_row; ++y) {
    resample_one(image.data + y * image.shape.w * image.shape.c, image.shape.w, columns,
                 out.shape.w, scratch.rows.data() + (y - first_row) * row);
  }
  for (std::int64_t y = 0; y < out.shape.h; ++y) {
    scratch.sums.assign(static_cast<std::size_t>(row), half);
    const std::int64_t first = lines.first[static_cast<std::size_t>(y)];
    for (std::int64_t tap = 0; tap < std::min(lines.taps, last_row - first); ++tap) {
      const std::int32_t weight = lines.of(y)[tap];
      if (weight == 0) continue;
      const std::uint8_t* in = scratch.rows.data() + (first - first_row + tap) * row;
      for (std::size_t i = 0; i < scratch.sums.size(); ++i) scratch.sums[i] += weight * in[i];
    }
    std::uint8_t* pixels = out.data + y * row;
    for (std::size_t i = 0; i < scratch.sums.size(); ++i) {
      pixels[i] = static_cast<std::uint8_t>(scratch.sums[i] >> weight_bits);
    }
  }
}

ImageWindow centre_window(std::int64_t original_height, std::int64_t original_width, double share,
                          std::int64_t height, std::int64_t width) {
  const auto down = static_cast<double>(original_height);
  const auto right = static_cast<double>(original_width);
  const double relation = static_cast<double>(width) / static_cast<double>(height);
  // The largest window of the wanted relation, or the share of the shorter side.
  const double side = share * std::min(down, right);
  double window_height = relation >= 1.0 ? side / relation : side;
  window_height = std::min({window_height, down, right / relation});
  const double window_width = window_height * relation;
  return {.top = (down - window_height) / 2.0,
          .left = (right - window_width) / 2.0,
          .height = window_height,
          .width = window_width};
}

}  // namespace rondo::train

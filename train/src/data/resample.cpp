// Changes the size of an image, in two passes: columns, then rows. A new pixel is the weighted mean
// of the old ones around its place; the weights fall linearly to zero at the distance of one pixel,
// of the new image where it is smaller than the window, else of the old one. This is what Pillow
// and torchvision (with antialias) call bilinear. Weights and sums are integers in units of
// 2^-16, and exact as floats, so that all machines get the same pixels.
//
// Each row of the original becomes a row of floats when the first new row needs it, and stays until
// the last one has; so few rows are alive at once that they stay in the cache. The loops are in
// resample_kernels.cpp, once for each instruction set.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <vector>

#include <rondo/train/image.hpp>

#include "data/resample.hpp"
#include "data/resample_kernels.hpp"

namespace rondo::train {
namespace {

constexpr std::int32_t one = 1 << 16;

// The old pixels and the new ones of a line.
struct Line {
  double begin = 0.0;  // of the window, in old pixels
  double extent = 0.0;
  std::int64_t pixels = 0;  // old ones
  std::int64_t count = 0;   // new ones

  bool operator==(const Line&) const = default;
};

// For each new pixel of a line: the first old pixel that has a part in it, how many have, and their
// weights.
struct LineWeights {
  Line line = {};
  std::size_t taps = 0;  // the most that a new pixel has
  std::vector<std::int64_t> first = {};
  std::vector<std::size_t> used = {};
  std::vector<float> values = {};  // `taps` of each new pixel, zero behind the used ones
  std::int64_t least = 0;          // the old pixels that any new one needs
  std::int64_t most = 0;

  [[nodiscard]] const float* of(std::size_t pixel) const { return values.data() + pixel * taps; }
};

// Brings the weights of one new pixel to a sum of exactly one: what rounding has left goes to the
// largest weight.
void round_weights(std::span<const double> shares, std::vector<std::int32_t>& weights) {
  double sum = 0.0;
  for (const double share : shares) sum += share;
  std::int32_t left = one;
  weights.clear();
  for (const double share : shares) {
    weights.push_back(static_cast<std::int32_t>(std::lround(share / sum * one)));
    left -= weights.back();
  }
  *std::ranges::max_element(weights) += left;
}

// A new pixel's weights without the zeros before and behind them, which rounding leaves there.
void append(std::int64_t first, std::span<const std::int32_t> weights, LineWeights& all) {
  while (weights.front() == 0) {
    weights = weights.subspan(1);
    ++first;
  }
  while (weights.back() == 0) weights = weights.first(weights.size() - 1);
  all.first.push_back(first);
  all.used.push_back(weights.size());
  for (const std::int32_t weight : weights) {
    all.values.push_back(static_cast<float>(weight) / static_cast<float>(one));
  }
  all.taps = std::max(all.taps, weights.size());
  all.least = std::min(all.least, first);
  all.most = std::max(all.most, first + static_cast<std::int64_t>(weights.size()));
}

// Gives each new pixel room for the same number of weights. From the back: none is overwritten
// before it has moved.
void spread(LineWeights& weights) {
  std::size_t end = weights.values.size();
  weights.values.resize(weights.used.size() * weights.taps);
  for (std::size_t pixel = weights.used.size(); pixel-- > 0;) {
    const std::size_t used = weights.used[pixel];
    float* const to = weights.values.data() + pixel * weights.taps;
    std::memmove(to, weights.values.data() + end - used, used * sizeof(float));
    std::fill(to + used, to + weights.taps, 0.0F);
    end -= used;
  }
}

// Does nothing if these are the weights of the line already: images of one size have the same.
void make_weights(const Line& line, LineWeights& weights) {
  if (weights.line == line) return;
  const double scale = line.extent / static_cast<double>(line.count);
  const double reach = std::max(scale, 1.0);
  // No pixel outside of the window takes part, as if it had been cut out before.
  const auto least =
      std::clamp<std::int64_t>(std::llround(std::floor(line.begin)), 0, line.pixels - 1);
  const auto most = std::clamp<std::int64_t>(std::llround(std::ceil(line.begin + line.extent)),
                                             least + 1, line.pixels);
  const auto longest = 2 * static_cast<std::int64_t>(std::ceil(reach)) + 1;
  weights.line = {};
  weights.taps = 0;
  weights.first.clear();
  weights.used.clear();
  weights.values.clear();
  weights.least = line.pixels;
  weights.most = 0;
  std::vector<double> shares;
  std::vector<std::int32_t> rounded;
  for (std::int64_t i = 0; i < line.count; ++i) {
    const double centre = line.begin + (static_cast<double>(i) + 0.5) * scale;
    const auto first =
        std::clamp<std::int64_t>(std::llround(std::floor(centre - reach + 0.5)), least, most - 1);
    const auto last =
        std::clamp<std::int64_t>(std::llround(std::floor(centre + reach + 0.5)), first + 1, most);
    shares.clear();
    for (std::int64_t old = first; old < std::min(last, first + longest); ++old) {
      const double distance = std::abs(static_cast<double>(old) + 0.5 - centre) / reach;
      shares.push_back(std::max(1.0 - distance, 1e-6));
    }
    round_weights(shares, rounded);
    append(first, rounded, weights);
  }
  spread(weights);
  // Last: an exception would leave them unfinished.
  weights.line = line;
}

// The memory that a thread needs while it resamples one image; kept for the next one.
struct Scratch {
  LineWeights columns = {};
  LineWeights lines = {};
  std::vector<std::uint32_t> offsets = {};
  std::vector<float> widened = {};
  std::vector<float> rows = {};
  std::vector<const float*> taps = {};
};

// How many rows are alive at once: from the first that a new row needs to the last that any new row
// up to it has needed.
std::size_t rows_alive(const LineWeights& lines) {
  std::int64_t last = 0;
  std::int64_t alive = 0;
  for (std::size_t y = 0; y < lines.first.size(); ++y) {
    last = std::max(last, lines.first[y] + static_cast<std::int64_t>(lines.used[y]));
    alive = std::max(alive, last - lines.first[y]);
  }
  return static_cast<std::size_t>(alive);
}

// The first pass, but for its row.
ResampleKernels::Columns first_pass(std::int64_t image_channels, Scratch& scratch) {
  const LineWeights& columns = scratch.columns;
  const auto channels = static_cast<std::size_t>(image_channels);
  const auto values = static_cast<std::size_t>(columns.most - columns.least) * channels;
  scratch.widened.resize(values + columns.taps * channels + 4);
  scratch.offsets.clear();
  for (const std::int64_t first : columns.first) {
    scratch.offsets.push_back(static_cast<std::uint32_t>((first - columns.least) * image_channels));
  }
  return {.in_values = values,
          .widened = scratch.widened.data(),
          .offsets = scratch.offsets.data(),
          .weights = columns.values.data(),
          .taps = columns.taps,
          .pixels = columns.first.size(),
          .channels = channels};
}

void check(const tensor::Shape& image, const tensor::Shape& out) {
  if (image.c != out.c || image.size() == 0 || out.size() == 0) {
    throw std::invalid_argument("resample: the images have no pixels, or other channels");
  }
  if (image.c > 4) throw std::invalid_argument("resample: an image must have 1 to 4 channels");
}

}  // namespace

std::span<const ResampleKernels* const> resample_kernels() {
#if defined(__x86_64__)
  static constexpr std::array<const ResampleKernels*, 3> all = {
      &baseline::resample_kernels, &avx2::resample_kernels, &avx512::resample_kernels};
  static const std::size_t supported = __builtin_cpu_supports("avx2") == 0      ? 1
                                       : __builtin_cpu_supports("avx512f") == 0 ? 2
                                                                                : 3;
  return std::span(all).first(supported);
#else
  static constexpr std::array<const ResampleKernels*, 1> all = {&baseline::resample_kernels};
  return all;
#endif
}

void resample(const StoredPixels& original, const ImageWindow& window,
              tensor::View<std::uint8_t> out) {
  const tensor::View<const std::uint8_t>& stored = original.pixels;
  check(stored.shape, out.shape);
  thread_local Scratch scratch;
  const LineWeights& columns = scratch.columns;
  const LineWeights& lines = scratch.lines;
  make_weights({window.left, window.width, original.width, out.shape.w}, scratch.columns);
  make_weights({window.top, window.height, original.height, out.shape.h}, scratch.lines);

  const ResampleKernels& kernels = *resample_kernels().back();
  const auto values = static_cast<std::size_t>(out.shape.w * out.shape.c);
  const std::size_t stride = (values + 4 + row_block - 1) / row_block * row_block;
  const std::size_t alive = rows_alive(lines);
  scratch.rows.resize(alive * stride);
  scratch.taps.resize(lines.taps);
  const auto place = [&](std::int64_t row) {
    return scratch.rows.data() + static_cast<std::size_t>(row) % alive * stride;
  };
  const std::uint8_t* const first_column =
      stored.data + (columns.least - original.left) * stored.shape.c;
  ResampleKernels::Columns pass = first_pass(stored.shape.c, scratch);
  std::int64_t next = lines.least;
  for (std::size_t y = 0; y < lines.first.size(); ++y) {
    const std::int64_t first = lines.first[y];
    const std::size_t used = lines.used[y];
    for (; next < first + static_cast<std::int64_t>(used); ++next) {
      pass.in = first_column + (next - original.top) * stored.shape.w * stored.shape.c;
      pass.out = place(next);
      kernels.columns(pass);
    }
    for (std::size_t tap = 0; tap < used; ++tap) {
      scratch.taps[tap] = place(first + static_cast<std::int64_t>(tap));
    }
    kernels.rows({.in = scratch.taps.data(),
                  .weights = lines.of(y),
                  .taps = used,
                  .values = values,
                  .out = out.data + y * values});
  }
}

void resample(tensor::View<const std::uint8_t> image, const ImageWindow& window,
              tensor::View<std::uint8_t> out) {
  resample({.pixels = image, .height = image.shape.h, .width = image.shape.w}, window, out);
}

ImageWindow centre_window(std::int64_t original_height, std::int64_t original_width, double share,
                          std::int64_t height, std::int64_t width) {
  const auto down = static_cast<double>(original_height);
  const auto right = static_cast<double>(original_width);
  const double relation = static_cast<double>(width) / static_cast<double>(height);
  // The largest window of the wanted relation, or the share of the shorter side.
  const double side = share * std::min(down, right);
  double window_height = relation >= 1.0 ? side : side / relation;
  window_height = std::min({window_height, down, right / relation});
  const double window_width = window_height * relation;
  return {.top = (down - window_height) / 2.0,
          .left = (right - window_width) / 2.0,
          .height = window_height,
          .width = window_width};
}

}  // namespace rondo::train

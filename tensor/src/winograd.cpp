// Convolutions of 3 x 3 filters with fewer multiplications, on NHWC tensors.
//
// A block of tiles is computed at a time: their patches are transformed into 36 planes with a row
// of channels for each tile, each plane is multiplied by its matrix of transformed filters, and the
// products are transformed into outputs. The block is so small that its planes stay in the
// second-level cache. Threads compute blocks of their own. For a gradient of weights the planes of
// dy take the place of filters, and the sum over tiles goes on from block to block; threads divide
// the tiles to be transformed, and then the planes.

#include "winograd.hpp"

#include <algorithm>

#include "onednn_kernel.hpp"

namespace rondo::tensor {

namespace {

constexpr std::int64_t vector = 16;      // channels and filters are multiples of it
constexpr std::int64_t row_group = 8;    // tiles are computed in such groups
constexpr std::int64_t cache_line = 16;  // floats
constexpr std::int64_t page = 1024;      // floats

// The floats that the planes of a block may take.
constexpr std::int64_t block_floats = 128 * 1024;
constexpr std::int64_t most_tiles = 96;
constexpr std::int64_t least_tiles = 24;
// The floats that transformed filters may take.
constexpr std::int64_t filter_floats = winograd_planes * 512 * 64;

std::int64_t rounded_up(std::int64_t count, std::int64_t unit) {
  return (count + unit - 1) / unit * unit;
}

std::int64_t panel_of(const WinogradLoops& loops, std::int64_t filters) {
  return filters % loops.widest_panel == 0 ? loops.widest_panel : vector;
}

// So many filters are transformed, or have their gradient summed, at once. The patches are
// transformed again for the next ones, which takes little time beside many products.
std::int64_t filters_at_once_of(const ConvolutionSpec& spec, const WinogradLoops& loops) {
  const std::int64_t panel = panel_of(loops, spec.filters);
  const std::int64_t fit = filter_floats / (winograd_planes * spec.input.c) / panel * panel;
  return std::min(std::max(fit, panel), spec.filters);
}

// Each block of tiles reads these filters, or reads and writes the sums of their gradient. With so
// many tiles this moves fewer bytes than the planes do when they leave the cache, too.
std::int64_t least_tiles_of(std::int64_t channels, std::int64_t filters, int passes) {
  return std::max(least_tiles, passes * channels * filters / (2 * (channels + filters)));
}

}  // namespace

WinogradTiling::WinogradTiling(const ConvolutionSpec& spec, std::int64_t filters_at_once,
                               std::int64_t least)
    : spec_(spec),
      output_(spec.output()),
      down_((output_.h + winograd_tile - 1) / winograd_tile),
      across_((output_.w + winograd_tile - 1) / winograd_tile),
      tiles_(spec.input.n * down_ * across_) {
  const std::int64_t floats = winograd_planes * (spec.input.c + filters_at_once);  // of a tile
  const std::int64_t fit = std::max(std::min(block_floats / floats, most_tiles), least);
  at_once_ = rounded_up(std::min(fit, tiles_), row_group);
}

WinogradSquare WinogradTiling::patch(std::int64_t tile) const noexcept {
  return {.rows = spec_.input.h,
          .columns = spec_.input.w,
          .channels = spec_.input.c,
          .top = tile / across_ % down_ * winograd_tile - spec_.pad_top,
          .left = tile % across_ * winograd_tile - spec_.pad_left,
          .used = spec_.input.c};
}

WinogradSquare WinogradTiling::output(std::int64_t tile, std::int64_t filters) const noexcept {
  return {.rows = output_.h,
          .columns = output_.w,
          .channels = output_.c,
          .top = tile / across_ % down_ * winograd_tile,
          .left = tile % across_ * winograd_tile,
          .used = filters};
}

WinogradPlanes::WinogradPlanes(std::int64_t rows, std::int64_t channels) noexcept
    : row(channels % (page / 4) == 0 ? channels + cache_line : channels),
      plane(rows * row + cache_line) {}

const WinogradLoops* winograd_loops(InstructionSet set) noexcept {
  switch (set) {
    case InstructionSet::avx512_bf16:
    case InstructionSet::avx512:
      return is_supported(set) ? &avx512::winograd_loops : nullptr;
    case InstructionSet::avx2:
      return is_supported(set) && __builtin_cpu_supports("fma") != 0 ? &avx2::winograd_loops
                                                                     : nullptr;
    case InstructionSet::baseline:
      break;
  }
  return nullptr;
}

const WinogradLoops* winograd_loops() noexcept {
  static const WinogradLoops* const chosen = winograd_loops(best_instruction_set());
  return chosen;
}

// Measured on a Zen 5 (kernels-in-turn): from 16 channels on, where at least half of the outputs
// that are computed lie within the image.
bool WinogradConvolution::is_faster(const ConvolutionSpec& spec) noexcept {
  const bool possible = spec.kernel_h == 3 && spec.kernel_w == 3 && spec.stride == 1 &&
                        spec.groups == 1 && spec.type == DataType::f32 &&
                        spec.input.c % vector == 0 && spec.filters % vector == 0;
  if (!possible || spec.input.n == 0 || winograd_loops() == nullptr) return false;
  const Shape output = spec.output();
  const std::int64_t computed =
      rounded_up(output.h, winograd_tile) * rounded_up(output.w, winograd_tile);
  return computed <= 2 * output.h * output.w;
}

WinogradConvolution::WinogradConvolution(const ConvolutionSpec& spec, const WinogradLoops& loops,
                                         int threads, bool mirrored)
    : spec_(spec),
      loops_(&loops),
      threads_(threads),
      mirrored_(mirrored),
      filters_at_once_(filters_at_once_of(spec, loops)),
      tiling_(spec, filters_at_once_, least_tiles_of(spec.input.c, filters_at_once_, 1)),
      inputs_(tiling_.at_once(), spec.input.c),
      outputs_(tiling_.at_once(), filters_at_once_) {}

std::string WinogradConvolution::name() const {
  return std::string("rondo:winograd_") + loops_->name;
}

dnnl::memory::desc WinogradConvolution::weights_layout() const {
  const std::int64_t rows = spec_.input.c;
  const std::int64_t columns = spec_.filters;
  const std::int64_t tap = rows * columns;
  const auto type = dnnl::memory::data_type::f32;
  if (mirrored_) return {{rows, columns, 3, 3}, type, {columns, 1, 3 * tap, tap}};
  return {{columns, rows, 3, 3}, type, {1, columns, 3 * tap, tap}};
}

std::size_t WinogradConvolution::scratchpad_bytes() const noexcept {
  const std::int64_t planes = threads_ * (inputs_.size() + outputs_.size());
  const std::int64_t filters = winograd_planes * spec_.input.c * filters_at_once_;
  return static_cast<std::size_t>(filters + planes) * sizeof(float);
}

void WinogradConvolution::run(const Engine::Impl& engine, const float* x, const float* weights,
                              const float* bias, float* y) const {
  engine.enter();
  const int parts = engine.threads();
  auto* const transformed = static_cast<float*>(engine.scratchpad());
  float* const planes = transformed + winograd_planes * spec_.input.c * filters_at_once_;
  const std::int64_t at_once = tiling_.at_once();
  const std::int64_t blocks = (tiling_.tiles() + at_once - 1) / at_once;
  for (std::int64_t f = 0; f < spec_.filters; f += filters_at_once_) {
    const Cut filters{f, std::min(f + filters_at_once_, spec_.filters)};
    for_each_part(parts, [&](int part) {
      transform_filters(filters, weights, cut(spec_.input.c, part, parts), transformed);
    });
    for_each_part(parts, [&](int part) {
      const Cut share = cut(blocks, part, parts);
      for (std::int64_t block = share.first; block < share.last; ++block) {
        const std::int64_t first = block * at_once;
        run_tiles(filters, {first, std::min(first + at_once, tiling_.tiles())}, x, transformed,
                  bias, y, planes + part * (inputs_.size() + outputs_.size()));
      }
    });
  }
}

// A matrix with a row for each channel, for each plane and panel.
void WinogradConvolution::transform_filters(const Cut& filters, const float* weights,
                                            const Cut& channels, float* transformed) const {
  const std::int64_t panel = panel_of(*loops_, spec_.filters);
  const std::int64_t count = filters.last - filters.first;
  for (std::int64_t f = 0; f < count; f += panel) {
    loops_->transform_filters({.from = weights + channels.first * spec_.filters + filters.first + f,
                               .channel = spec_.filters,
                               .tap = spec_.input.c * spec_.filters,
                               .columns = panel,
                               .channels = channels.last - channels.first,
                               .turned = mirrored_,
                               .into = transformed + f * spec_.input.c + channels.first * panel,
                               .plane = spec_.input.c * count});
  }
}

// The last group of rows of a short block has rows that nobody reads.
void WinogradConvolution::run_tiles(const Cut& filters, const Cut& tiles, const float* x,
                                    const float* transformed, const float* bias, float* y,
                                    float* scratchpad) const {
  float* const inputs = scratchpad;
  float* const outputs = scratchpad + inputs_.size();
  for (std::int64_t tile = tiles.first; tile < tiles.last; ++tile) {
    loops_->transform_input(tiling_.patch(tile), x + tiling_.image_of(tile) * tiling_.input_image(),
                            inputs_.at(inputs, tile - tiles.first));
  }
  const std::int64_t panel = panel_of(*loops_, spec_.filters);
  const std::int64_t count = filters.last - filters.first;
  for (std::int64_t plane = 0; plane < winograd_planes; ++plane) {
    for (std::int64_t f = 0; f < count; f += panel) {
      loops_->multiply({.left = inputs + plane * inputs_.plane,
                        .left_row = inputs_.row,
                        .left_step = 1,
                        .right = transformed + (plane * count + f) * spec_.input.c,
                        .right_step = panel,
                        .into = outputs + plane * outputs_.plane + f,
                        .into_row = outputs_.row,
                        .rows = rounded_up(tiles.last - tiles.first, row_group),
                        .steps = spec_.input.c,
                        .columns = panel});
    }
  }
  const float* const added = bias == nullptr ? nullptr : bias + filters.first;
  const bool rectified = spec_.activation == Activation::relu;
  for (std::int64_t tile = tiles.first; tile < tiles.last; ++tile) {
    loops_->write_output(tiling_.output(tile, count), added, rectified,
                         outputs_.at(outputs, tile - tiles.first),
                         y + tiling_.image_of(tile) * tiling_.output_image() + filters.first);
  }
}

WinogradWeightGradient::WinogradWeightGradient(const ConvolutionSpec& spec,
                                               const WinogradLoops& loops, int threads)
    : spec_(spec),
      loops_(&loops),
      filters_at_once_(filters_at_once_of(spec, loops)),
      tiling_(spec, filters_at_once_, threads * least_tiles_of(spec.input.c, filters_at_once_, 2)),
      inputs_(tiling_.at_once(), spec.input.c),
      gradients_(tiling_.at_once(), filters_at_once_),
      sums_(spec.input.c, filters_at_once_) {}

std::size_t WinogradWeightGradient::scratchpad_bytes() const noexcept {
  const std::int64_t planes = inputs_.size() + gradients_.size() + sums_.size();
  return static_cast<std::size_t>(planes) * sizeof(float) +
         static_cast<std::size_t>(filters_at_once_) * sizeof(double);
}

std::string WinogradWeightGradient::name() const {
  return std::string("rondo:winograd_") + loops_->name;
}

void WinogradWeightGradient::run(const Engine::Impl& engine, const void* x, const void* dy,
                                 float* into, float* bias_gradient) const {
  engine.enter();
  for (std::int64_t f = 0; f < spec_.filters; f += filters_at_once_) {
    run_filters(engine, {f, std::min(f + filters_at_once_, spec_.filters)},
                static_cast<const float*>(x), static_cast<const float*>(dy), into, bias_gradient);
  }
}

void WinogradWeightGradient::run_filters(const Engine::Impl& engine, const Cut& filters,
                                         const float* x, const float* dy, float* into,
                                         float* bias_gradient) const {
  auto* const inputs = static_cast<float*>(engine.scratchpad());
  float* const gradients = inputs + inputs_.size();
  float* const sums = gradients + gradients_.size();
  auto* const bias_sums = reinterpret_cast<double*>(sums + sums_.size());
  const std::int64_t wanted = filters.last - filters.first;
  const std::int64_t products = winograd_planes * (wanted / panel_of(*loops_, spec_.filters));
  const int parts = engine.threads();
  if (bias_gradient != nullptr) std::fill_n(bias_sums, wanted, 0.0);
  for (std::int64_t begin = 0; begin < tiling_.tiles(); begin += tiling_.at_once()) {
    const std::int64_t count = std::min(tiling_.at_once(), tiling_.tiles() - begin);
    for_each_part(parts, [&](int part) {
      transform(filters, begin, cut(count, part, parts), x, dy, inputs, gradients);
    });
    for_each_part(parts, [&](int part) {
      multiply(filters, cut(products, part, parts), count, begin > 0, inputs, gradients, sums);
    });
    if (bias_gradient != nullptr) add_bias_gradient(wanted, count, gradients, bias_sums);
  }
  if (bias_gradient != nullptr) std::copy_n(bias_sums, wanted, bias_gradient + filters.first);
  for_each_part(parts, [&](int part) {
    const Cut share = cut(spec_.input.c, part, parts);
    for (std::int64_t c = share.first; c < share.last; ++c) {
      loops_->write_weights(sums_.at(sums, c), wanted, into + c * spec_.filters + filters.first,
                            spec_.input.c * spec_.filters);
    }
  });
}

void WinogradWeightGradient::transform(const Cut& filters, std::int64_t begin, const Cut& share,
                                       const float* x, const float* dy, float* inputs,
                                       float* gradients) const {
  const std::int64_t wanted = filters.last - filters.first;
  for (std::int64_t i = share.first; i < share.last; ++i) {
    const std::int64_t image = tiling_.image_of(begin + i);
    loops_->transform_input(tiling_.patch(begin + i), x + image * tiling_.input_image(),
                            inputs_.at(inputs, i));
    loops_->transform_gradient(tiling_.output(begin + i, wanted),
                               dy + image * tiling_.output_image() + filters.first,
                               gradients_.at(gradients, i));
  }
}

// The transform's second row and column add: their plane has the sum of a tile's gradients.
void WinogradWeightGradient::add_bias_gradient(std::int64_t filters, std::int64_t tiles,
                                               const float* gradients, double* sums) const {
  const float* const plane = gradients + (winograd_patch + 1) * gradients_.plane;
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    const float* const row = plane + tile * gradients_.row;
    for (std::int64_t f = 0; f < filters; ++f) sums[f] += static_cast<double>(row[f]);
  }
}

// Products are numbered by plane and panel.
void WinogradWeightGradient::multiply(const Cut& filters, const Cut& products, std::int64_t tiles,
                                      bool add, const float* inputs, const float* gradients,
                                      float* sums) const {
  const std::int64_t panel = panel_of(*loops_, spec_.filters);
  const std::int64_t panels = (filters.last - filters.first) / panel;
  for (std::int64_t product = products.first; product < products.last; ++product) {
    const std::int64_t plane = product / panels;
    const std::int64_t filter = product % panels * panel;
    loops_->multiply({.left = inputs + plane * inputs_.plane,
                      .left_row = 1,
                      .left_step = inputs_.row,
                      .right = gradients + plane * gradients_.plane + filter,
                      .right_step = gradients_.row,
                      .into = sums + plane * sums_.plane + filter,
                      .into_row = sums_.row,
                      .rows = spec_.input.c,
                      .steps = tiles,
                      .columns = panel,
                      .add = add});
  }
}

}  // namespace rondo::tensor

// Weight gradients of convolutions by vector instructions.
//
// dw[kh][kw][c][f] is the sum over all pixels of x[row * stride + kh - pad][column * stride + kw -
// pad][c] * dy[row][column][f]. A register tile keeps the three taps of a filter's row for some
// channels and filters, and walks over all rows of a slab of images, so that each value that it
// loads is used several times. For that one of the operands is laid out anew, with its padding: dy
// where the stride is 1, because the loads of x are then shared by the three taps; otherwise x. In
// bf16 both are, as pairs of neighbouring steps, which is what the CPU's instruction multiplies; an
// odd shift needs a copy whose pairs begin one column later.
//
// Threads divide the rows to be laid out, and then the tiles. Each element of the result is summed
// by one thread in one order.
//
// Plain loops stand in where a kernel of oneDNN's is broken; they lay out nothing.

#include "direct_weight_gradient.hpp"

#include <algorithm>

#include "onednn_kernel.hpp"

namespace rondo::tensor {

namespace {

using Unit = std::uint32_t;  // a float, or a pair of bf16

constexpr std::int64_t cache_line = 64;  // bytes

// The most that a slab's operands take: each tile reads them once, from the second-level cache.
constexpr std::int64_t slab_units = 512 * 1024 / sizeof(Unit);

// Where these loops are faster (kernels-in-turn): up to 128 channels. On a Zen 5 beside oneDNN 2.6,
// 3.7 and 3.12 they are 1.1 to 1.6 times as fast in bf16, and in fp32 1.0 to 1.8 times on images of
// 28 x 28 and more; the small images of ResNet-20 gain 0 to 10 % or lose 5 %. On a Xeon with AMX
// they are 3 to 10 % slower in fp32, and in bf16 AMX is four times as fast.
constexpr std::int64_t most_channels = 128;
constexpr std::int64_t least_channels_in_fp32 = 64;

std::int64_t steps_of(std::int64_t columns, DataType type) {
  return type == DataType::bf16 ? (columns + 1) / 2 : columns;
}

}  // namespace

std::shared_ptr<const DirectWeightGradient> DirectWeightGradient::choose(
    const ConvolutionSpec& spec) {
  const ConvolutionTiles* tiles = convolution_tiles(spec.type);
  const bool possible = tiles != nullptr && spec.input.n > 0 && spec.groups == 1 && !spec.bias &&
                        spec.kernel_w == tile_taps && spec.input.c % 8 == 0 &&
                        spec.filters % 16 == 0;
  if (!possible || may_use(dnnl_cpu_isa_avx512_core_amx)) return {};
  const auto [fewest, most] = std::minmax(spec.input.c, spec.filters);
  const bool faster =
      spec.type == DataType::bf16 || spec.stride > 1 || fewest >= least_channels_in_fp32;
  if (!faster || most > most_channels) return {};
  return std::make_shared<DirectWeightGradient>(spec, *tiles);
}

DirectWeightGradient::DirectWeightGradient(const ConvolutionSpec& spec,
                                           const ConvolutionTiles& tiles)
    : spec_(spec),
      output_(spec.output()),
      tile_(spec.filters % tiles.wide.filters == 0 ? tiles.wide : tiles.narrow),
      pair_(tiles.pair),
      x_{.channels = spec.input.c, .columns = spec.input.w, .rows = spec.input.h},
      dy_{.channels = output_.c, .columns = output_.w, .rows = output_.h} {
  for (Operand* operand : {&x_, &dy_}) {
    operand->packed = spec.type == DataType::bf16;
    operand->length = steps_of(operand->columns, spec.type);
  }
  if (spec.stride == 1) {
    steps_ = x_.length;
    run_tile_ = tile_.shifted_dy;
    shift(dy_, spec.pad_left - static_cast<std::int64_t>(taps - 1), 1, true);
  } else {
    steps_ = dy_.length;
    run_tile_ = tile_.shifted_x;
    shift(x_, -spec.pad_left, spec.stride, false);
  }
  const std::int64_t row = dy_.row_units() + spec.stride * x_.row_units();
  slab_images_ = std::clamp<std::int64_t>(slab_units / (row * output_.h), 1, spec.input.n);
  slab_rows_ = std::clamp<std::int64_t>(slab_units / row, 1, output_.h);
}

// In step j tap k reads column lowest + stride * j + k, or + 2 - k where taps run backward.
void DirectWeightGradient::shift(Operand& operand, std::int64_t lowest, std::int64_t stride,
                                 bool mirrored) {
  const bool paired = spec_.type == DataType::bf16;
  const auto last = static_cast<std::int64_t>(taps) - 1;
  const std::int64_t period = paired ? 2 * stride : last + 1;  // columns from copy to copy
  operand.packed = true;
  operand.first = lowest;
  operand.stride = stride;
  operand.copies = paired ? std::min(last + 1, period) : 1;
  operand.length = paired ? steps_ + last / period : (steps_ - 1) * stride + last + 1;
  for (std::int64_t tap = 0; tap <= last; ++tap) {
    const std::int64_t column = mirrored ? last - tap : tap;
    const std::int64_t step = paired ? column % period * operand.length + column / period : column;
    shifts_[static_cast<std::size_t>(tap)] = step * operand.channels;
  }
}

DirectWeightGradient::Rows DirectWeightGradient::rows_of_x(const Slab& slab) const noexcept {
  const std::int64_t first = std::max<std::int64_t>(0, slab.row * spec_.stride - spec_.pad_top);
  const std::int64_t last =
      std::min(x_.rows, (slab.last_row() - 1) * spec_.stride + spec_.kernel_h - spec_.pad_top);
  return {first, std::max<std::int64_t>(0, last - first)};
}

std::size_t DirectWeightGradient::scratchpad_bytes() const noexcept {
  const std::int64_t rows = std::min(x_.rows, (slab_rows_ - 1) * spec_.stride + spec_.kernel_h);
  const std::int64_t units = slab_images_ * ((x_.packed ? rows * x_.row_units() : 0) +
                                             (dy_.packed ? slab_rows_ * dy_.row_units() : 0));
  return static_cast<std::size_t>(units) * sizeof(Unit);
}

std::string DirectWeightGradient::name() const {
  if (run_tile_ == nullptr) return "rondo:plain";
  return spec_.type == DataType::bf16 ? "rondo:avx512_bf16" : "rondo:avx512";
}

void DirectWeightGradient::run(const Engine::Impl& engine, const void* x, const void* dy,
                               float* into, float* /*bias_gradient*/) const {
  engine.enter();
  if (run_tile_ == nullptr) {
    return run_plainly(engine, static_cast<const float*>(x), static_cast<const float*>(dy), into);
  }
  std::fill_n(into, spec_.weights(), 0.0F);
  for (std::int64_t image = 0; image < spec_.input.n; image += slab_images_) {
    const std::int64_t images = std::min(slab_images_, spec_.input.n - image);
    for (std::int64_t row = 0; row < output_.h; row += slab_rows_) {
      const std::int64_t rows = std::min(slab_rows_, output_.h - row);
      compute({image, images, row, rows}, engine, x, dy, into);
    }
  }
}

// A line of the result has the filters of one channel at one place of the kernel.
void DirectWeightGradient::run_plainly(const Engine::Impl& engine, const float* x, const float* dy,
                                       float* into) const {
  const std::int64_t lines = spec_.kernel_h * spec_.kernel_w * spec_.input.c;
  for_each_part(engine.threads(), [&](int part) {
    const Cut share = cut(lines, part, engine.threads());
    for (std::int64_t line = share.first; line < share.last; ++line) {
      sum_line(line, x, dy, into + line * output_.c);
    }
  });
}

void DirectWeightGradient::sum_line(std::int64_t line, const float* x, const float* dy,
                                    float* sums) const {
  const Shape& in = spec_.input;
  const std::int64_t channel = line % in.c;
  const std::int64_t down = line / in.c / spec_.kernel_w - spec_.pad_top;
  const std::int64_t across = line / in.c % spec_.kernel_w - spec_.pad_left;
  std::fill_n(sums, output_.c, 0.0F);
  for (std::int64_t i = 0; i < output_.n * output_.h; ++i) {
    const std::int64_t row = i % output_.h * spec_.stride + down;
    if (row < 0 || row >= in.h) continue;
    const float* const x_row = x + (i / output_.h * in.h + row) * in.w * in.c + channel;
    for (std::int64_t step = 0; step < output_.w; ++step) {
      const std::int64_t column = step * spec_.stride + across;
      if (column < 0 || column >= in.w) continue;
      const float value = x_row[column * in.c];
      const float* const filters = dy + (i * output_.w + step) * output_.c;
      for (std::int64_t f = 0; f < output_.c; ++f) sums[f] += value * filters[f];
    }
  }
}

void DirectWeightGradient::compute(const Slab& slab, const Engine::Impl& engine, const void* x,
                                   const void* dy, float* into) const {
  const Rows x_rows = rows_of_x(slab);
  const Rows dy_rows{slab.row, slab.rows};
  auto* const scratchpad = static_cast<Unit*>(engine.scratchpad());
  Unit* const packed_x = scratchpad;
  Unit* const packed_dy =
      scratchpad + (x_.packed ? slab.images * x_rows.count * x_.row_units() : 0);
  const int parts = engine.threads();
  for_each_part(parts, [&](int part) {
    pack(x_, slab, x_rows, x, packed_x, part, parts);
    pack(dy_, slab, dy_rows, dy, packed_dy, part, parts);
  });
  const auto begin = [&](const Operand& operand, const void* tensor, const Unit* packed,
                         Rows rows) -> const void* {
    const std::int64_t row = slab.image * operand.rows + rows.first;
    return operand.packed ? packed : static_cast<const Unit*>(tensor) + row * operand.row_units();
  };
  const auto image_distance = [](const Operand& operand, Rows rows) {
    return (operand.packed ? rows.count : operand.rows) * operand.row_units();
  };
  const bool paired = spec_.type == DataType::bf16;
  const auto step = [&](const Operand& operand) {
    return (paired ? 1 : operand.stride) * operand.channels;
  };
  const WeightTile whole = {.x = begin(x_, x, packed_x, x_rows),
                            .dy = begin(dy_, dy, packed_dy, dy_rows),
                            .x_image = image_distance(x_, x_rows),
                            .x_row = x_.row_units() * spec_.stride,
                            .x_step = step(x_),
                            .dy_image = image_distance(dy_, dy_rows),
                            .dy_row = dy_.row_units(),
                            .dy_step = step(dy_),
                            .shifts = shifts_.data(),
                            .images = slab.images,
                            .steps = steps_,
                            .into = into,
                            .into_tap = spec_.input.c * spec_.filters,
                            .into_channel = spec_.filters};
  const std::int64_t tiles =
      spec_.kernel_h * (spec_.input.c / tile_.channels) * (spec_.filters / tile_.filters);
  const Ahead ahead = what_follows(slab, x, dy);
  for_each_part(parts, [&](int part) {
    const Cut share = cut(tiles, part, parts);
    for (std::int64_t tile = share.first; tile < share.last; ++tile) {
      run_tile(slab, whole, tile, ahead.of_tile(tile, tiles));
    }
  });
}

DirectWeightGradient::Ahead::Share DirectWeightGradient::Ahead::of_tile(
    std::int64_t tile, std::int64_t tiles) const noexcept {
  const bool first = tile % 2 == 0;
  const Share& all = first ? x : dy;
  const std::int64_t readers = (tiles + (first ? 1 : 0)) / 2;
  const std::int64_t lines = (all.lines + readers - 1) / readers;
  const std::int64_t begin = std::min(tile / 2 * lines, all.lines);
  return {all.from + begin * cache_line, std::min(lines, all.lines - begin)};
}

DirectWeightGradient::Ahead DirectWeightGradient::what_follows(const Slab& slab, const void* x,
                                                               const void* dy) const noexcept {
  Slab next = slab;
  next.row += slab.rows;
  if (next.row >= output_.h) {
    next.row = 0;
    next.image += slab.images;
  }
  next.images = std::min(slab.images, spec_.input.n - next.image);
  next.rows = std::min(slab_rows_, output_.h - next.row);
  if (next.images <= 0) return {};
  const auto share = [&](const Operand& operand, const void* tensor, Rows rows) -> Ahead::Share {
    const auto row_bytes =
        operand.columns * operand.channels * static_cast<std::int64_t>(size_of(spec_.type));
    const std::int64_t first = next.image * operand.rows + rows.first;
    const std::int64_t count = (next.images - 1) * operand.rows + rows.count;
    return {static_cast<const std::byte*>(tensor) + first * row_bytes,
            count * row_bytes / cache_line};
  };
  return {share(x_, x, rows_of_x(next)), share(dy_, dy, {next.row, next.rows})};
}

// Part `part` of the slab's rows; an operand that tiles read in place is left alone.
void DirectWeightGradient::pack(const Operand& operand, const Slab& slab, Rows rows,
                                const void* from, void* into, int part, int parts) const {
  if (!operand.packed) return;
  const Cut share = cut(slab.images * rows.count, part, parts);
  const auto row_bytes =
      static_cast<std::size_t>(operand.columns * operand.channels) * size_of(spec_.type);
  for (std::int64_t i = share.first; i < share.last; ++i) {
    const std::int64_t row =
        (slab.image + i / rows.count) * operand.rows + rows.first + i % rows.count;
    pack_row(operand,
             static_cast<const std::byte*>(from) + static_cast<std::size_t>(row) * row_bytes,
             static_cast<Unit*>(into) + i * operand.row_units());
  }
}

void DirectWeightGradient::pack_row(const Operand& operand, const void* row, void* into) const {
  if (spec_.type == DataType::bf16) {
    for (std::int64_t copy = 0; copy < operand.copies; ++copy) {
      pair_({.row = static_cast<const Bfloat16*>(row),
             .columns = operand.columns,
             .channels = operand.channels,
             .first = operand.first + copy,
             .stride = operand.stride,
             .pairs = operand.length,
             .into = static_cast<Unit*>(into) + copy * operand.length * operand.channels});
    }
    return;
  }
  // The columns of the image, between zeros.
  const std::int64_t begin = std::clamp<std::int64_t>(-operand.first, 0, operand.length);
  const std::int64_t end = std::clamp(operand.columns - operand.first, begin, operand.length);
  const auto* const values =
      static_cast<const float*>(row) + (operand.first + begin) * operand.channels;
  auto* const packed = static_cast<float*>(into);
  std::fill_n(packed, begin * operand.channels, 0.0F);
  std::copy_n(values, (end - begin) * operand.channels, packed + begin * operand.channels);
  std::fill_n(packed + end * operand.channels, (operand.length - end) * operand.channels, 0.0F);
}

// Tiles are numbered by filter row, channels and filters. Rows of dy whose row of x is padding add
// nothing.
void DirectWeightGradient::run_tile(const Slab& slab, const WeightTile& whole, std::int64_t index,
                                    Ahead::Share ahead) const {
  const std::int64_t across = spec_.filters / tile_.filters;
  const std::int64_t down = spec_.input.c / tile_.channels;
  const Rows x_rows = rows_of_x(slab);
  const std::int64_t filter = index % across * tile_.filters;
  const std::int64_t channel = index / across % down * tile_.channels;
  const std::int64_t filter_row = index / across / down;
  const std::int64_t offset = filter_row - spec_.pad_top;  // of x's row from stride * dy's
  const std::int64_t begin = std::max(
      slab.row, offset < 0 ? (-offset + spec_.stride - 1) / spec_.stride : std::int64_t{0});
  const std::int64_t beyond = x_rows.first + x_rows.count - offset;  // stride * row is below
  const std::int64_t end =
      std::min(slab.last_row(), beyond <= 0 ? 0 : (beyond + spec_.stride - 1) / spec_.stride);
  if (begin >= end) return;
  WeightTile tile = whole;
  const std::int64_t x_row = begin * spec_.stride + offset - x_rows.first;
  tile.x = static_cast<const Unit*>(whole.x) + x_row * x_.row_units() + channel;
  tile.dy = static_cast<const Unit*>(whole.dy) + (begin - slab.row) * dy_.row_units() + filter;
  tile.rows = end - begin;
  tile.into =
      whole.into +
      (filter_row * static_cast<std::int64_t>(taps) * spec_.input.c + channel) * spec_.filters +
      filter;
  tile.ahead = ahead.from;
  tile.ahead_lines = ahead.lines / (tile.images * tile.rows);
  run_tile_(tile);
}

}  // namespace rondo::tensor

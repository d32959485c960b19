// The kernels of oneDNN that compute wrong results, by release.

#include "onednn_defects.hpp"

#include <algorithm>
#include <array>

#include <oneapi/dnnl/dnnl.h>

namespace rondo::tensor::onednn {
namespace {

constexpr std::array tried{Version{2, 6}};

// Ranks at the right border of images that are split by columns have such padding. The rule covers
// all that was seen, for some widths and numbers of channels, and more.
bool is_padded_on_the_right(const ConvolutionSpec& spec) {
  return spec.stride == 1 && spec.pad_right >= 4 && spec.pad_left < spec.pad_right;
}

// Kernels of one pixel copy every stride-th pixel first. Where a vector has more elements than the
// images have channels, the copy ends behind its memory.
template <int Vector>
bool has_few_channels_and_a_stride(const ConvolutionSpec& spec) {
  return spec.stride > 1 && spec.input.c < Vector;
}

// In turn on a Zen 5 (kernels-in-turn, 3.12): 1.4 to 4.4 times as long with up to 64 channels, 1.24
// to 1.41 times for one pixel in bf16; 0.86 to 1.1 times for the others. Full vectors have another
// kernel than the reference.
bool is_strided_and_narrow(const ConvolutionSpec& spec) {
  const bool full_vectors = spec.input.c % 16 == 0 && spec.filters % 16 == 0 && spec.groups == 1;
  const bool pixel_in_bf16 =
      spec.kernel_h == 1 && spec.kernel_w == 1 && spec.type == DataType::bf16;
  return spec.stride > 1 && full_vectors &&
         (std::min(spec.input.c, spec.filters) <= 64 || pixel_in_bf16);
}

// Seen for outputs that read nothing but padding, and in layers that are split by channel.
bool is_any(const ConvolutionSpec& /*spec*/) { return true; }

// Seen for some numbers of pixels, 30 x 30 among them.
bool has_an_odd_number_of_channels(const ConvolutionSpec& spec) {
  return spec.input.c / spec.groups % 2 != 0;
}
bool has_an_odd_number_of_filters(const ConvolutionSpec& spec) {
  return spec.filters / spec.groups % 2 != 0;
}

constexpr std::array known{
    Defect{.pass = Pass::forward,
           .kernel = "brgconv:",
           .first = {2, 6},
           .last = {2, 6},
           .concerns = &is_padded_on_the_right,
           .effect = "reads one tap too many, from the next row",
           .remedy = "split the layer by rows, not by columns",
           .example = {.input = {2, 7, 7, 16},
                       .filters = 64,
                       .kernel_h = 5,
                       .kernel_w = 5,
                       .pad_top = 2,
                       .pad_bottom = 2,
                       .pad_right = 4}},
    Defect{.pass = Pass::backward_weights,
           .kernel = "jit_1x1:avx2",
           .first = {2, 6},
           .last = {3, 12},
           .concerns = &has_few_channels_and_a_stride<8>,
           .effect = "writes behind its memory",
           .remedy = "use 8 channels, or no bias",
           .example = {.input = {1, 6, 6, 1}, .filters = 8, .stride = 2}},
    Defect{.pass = Pass::backward_weights,
           .kernel = "jit_1x1:avx512_core",
           .first = {2, 6},
           .last = {3, 12},
           .concerns = &has_few_channels_and_a_stride<16>,
           .effect = "writes behind its memory",
           .remedy = "use 16 channels",
           .example = {.input = {1, 56, 56, 8}, .filters = 128, .stride = 2}},
    Defect{.pass = Pass::forward,
           .kernel = "jit_bf16_1x1:",
           .first = {2, 6},
           .last = {3, 12},
           .concerns = &has_an_odd_number_of_channels,
           .effect = "returns sums that have nothing to do with the layer",
           .remedy = "take an even number of channels",
           .example = {.input = {1, 30, 30, 17}, .filters = 16, .type = DataType::bf16}},
    Defect{.pass = Pass::backward_data,
           .kernel = "jit_bf16_1x1:",
           .first = {2, 6},
           .last = {3, 12},
           .concerns = &has_an_odd_number_of_filters,
           .effect = "returns sums that have nothing to do with the gradient",
           .remedy = "take an even number of filters",
           .example = {.input = {1, 30, 30, 16}, .filters = 17, .type = DataType::bf16}},
    Defect{.kind = Defect::Kind::fatal,
           .pass = Pass::forward,
           .kernel = "brg_conv_fwd:avx2",
           .first = {3, 7},
           .last = {3, 7},
           .concerns = &is_any,
           .effect = "reads and writes outside of its memory",
           .remedy = "choose another number of channels",
           .example = {.input = {3, 6, 6, 6},
                       .filters = 7,
                       .kernel_h = 3,
                       .kernel_w = 3,
                       .pad_top = 1,
                       .pad_bottom = 1,
                       .pad_left = 1,
                       .pad_right = 1}},
    Defect{.kind = Defect::Kind::slow,
           .pass = Pass::backward_data,
           .kernel = "brgconv_strided:avx512_core",
           .first = {3, 7},
           .last = {3, 12},
           .concerns = &is_strided_and_narrow,
           .effect = "takes up to 4.4 times as long as the next one",
           .remedy = "",
           .example = {.input = {2, 16, 16, 16},
                       .filters = 32,
                       .kernel_h = 3,
                       .kernel_w = 3,
                       .stride = 2,
                       .pad_top = 1,
                       .pad_left = 1}},
};

// Does some window read an element of the image through this row or column of the kernel?
bool reads_image(std::int64_t tap, std::int64_t padding, std::int64_t extent, std::int64_t windows,
                 std::int64_t stride) {
  for (std::int64_t i = 0; i < windows; ++i) {
    const std::int64_t at = i * stride + tap - padding;
    if (at >= 0 && at < extent) return true;
  }
  return false;
}

}  // namespace

Version version() noexcept {
  const dnnl_version_t& linked = *dnnl_version();
  return {linked.major, linked.minor};
}

bool is_tried(Version release) noexcept { return std::ranges::find(tried, release) != tried.end(); }

std::span<const Defect> defects() noexcept { return known; }

const Defect* defect_of(Pass pass, std::string_view kernel, const ConvolutionSpec& spec,
                        Version release) noexcept {
  const bool any_release = !is_tried(release);
  const auto* const found = std::ranges::find_if(known, [&](const Defect& defect) {
    const bool has_it = any_release || (defect.first <= release && release <= defect.last);
    return has_it && defect.pass == pass && kernel.starts_with(defect.kernel) &&
           defect.concerns(spec);
  });
  return found == known.end() ? nullptr : found;
}

bool may_drop_elements(Version release) noexcept {
  return !is_tried(release) || release == Version{3, 7};
}

// brgconv_1x1 of 3.7 estimates some shapes by a quotient that it needs for AMX alone. Without a
// stride, backward-data asks for the same kernel with channels and filters exchanged.
bool ends_the_process(const ConvolutionSpec& spec, Version release) noexcept {
  const auto is_estimated = [](std::int64_t channels, std::int64_t filters) {
    constexpr std::array<std::array<std::int64_t, 2>, 5> shapes{
        {{1024, 2048}, {1024, 512}, {256, 1024}, {512, 1024}, {512, 2048}}};
    return std::ranges::find(shapes, std::array{channels, filters}) != shapes.end();
  };
  const bool is_pixel =
      spec.kernel_h == 1 && spec.kernel_w == 1 && spec.groups == 1 &&
      std::max({spec.pad_top, spec.pad_bottom, spec.pad_left, spec.pad_right}) == 0;
  return release == Version{3, 7} && is_pixel &&
         (is_estimated(spec.input.c, spec.filters) ||
          (spec.stride == 1 && is_estimated(spec.filters, spec.input.c)));
}

std::vector<std::size_t> taps_in_padding(const ConvolutionSpec& spec) {
  std::vector<std::size_t> taps;
  if (spec.type != DataType::bf16 || spec.stride == 1) return taps;
  const Shape output = spec.output();
  for (std::int64_t h = 0; h < spec.kernel_h; ++h) {
    const bool row = reads_image(h, spec.pad_top, spec.input.h, output.h, spec.stride);
    for (std::int64_t w = 0; w < spec.kernel_w; ++w) {
      if (row && reads_image(w, spec.pad_left, spec.input.w, output.w, spec.stride)) continue;
      taps.push_back(static_cast<std::size_t>(h * spec.kernel_w + w));
    }
  }
  return taps;
}

}  // namespace rondo::tensor::onednn

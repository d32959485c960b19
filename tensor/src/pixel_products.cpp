// oneDNN 3.7 divides by zero while it describes some convolutions by one pixel, among them six of
// ResNet-50, on every processor without AMX: the process ends by SIGFPE. A fully connected layer
// over all pixels computes the same sums by other kernels.

#include "pixel_products.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "onednn_defects.hpp"

namespace rondo::tensor {

bool PixelProducts::replaces(const ConvolutionSpec& spec) {
  return spec.input.n > 0 && onednn::ends_the_process(spec) &&
         !may_use(dnnl_cpu_isa_avx512_core_amx);
}

ConvolutionSpec PixelProducts::gathered(const ConvolutionSpec& spec) {
  ConvolutionSpec dense = spec;
  dense.input = spec.output();
  dense.input.c = spec.input.c;
  dense.stride = 1;
  return dense;
}

LayerKernels PixelProducts::kernels(const ConvolutionSpec& spec, const Engine::Impl& on) {
  return fully_connected_kernels(
      {.input = {spec.input.n * spec.input.h * spec.input.w, 1, 1, spec.input.c},
       .outputs = spec.filters,
       .bias = spec.bias,
       .activation = spec.activation,
       .input_gradient = spec.input_gradient,
       .weight_gradient = spec.weight_gradient,
       .type = spec.type,
       .f32_input_gradient = spec.f32_input_gradient},
      spec.output_type(), on);
}

// dx may be fp32 where x is bf16.
std::size_t PixelProducts::bytes(const ConvolutionSpec& spec) {
  if (spec.stride == 1) return 0;
  const auto elements = static_cast<std::size_t>(gathered(spec).input.size());
  return elements * std::max(size_of(spec.type), size_of(spec.input_gradient_type()));
}

PixelProducts::PixelProducts(Engine::Impl& engine, const ConvolutionSpec& spec)
    : engine_(engine), spec_(spec), buffer_(engine.layer_memory(), bytes(spec)) {}

AnyView PixelProducts::pixels(DataType type) const {
  return {buffer_.data(), gathered(spec_).input, type};
}

// use(index of the gathered pixel, index of the same pixel in x).
template <typename Use>
void PixelProducts::for_each_pixel(const Use& use) const {
  const Shape y = spec_.output();
  for_each_part(engine_.threads(), [&](int part) {
    const Cut rows = cut(y.n * y.h, part, engine_.threads());
    for (std::int64_t row = rows.first; row < rows.last; ++row) {
      const std::int64_t from = (row / y.h * spec_.input.h + row % y.h * spec_.stride);
      for (std::int64_t column = 0; column < y.w; ++column) {
        use(row * y.w + column, from * spec_.input.w + column * spec_.stride);
      }
    }
  });
}

ConstAnyView PixelProducts::gather(ConstAnyView x) {
  if (!gathers()) return x;
  require_shape("Convolution", "x", x, spec_.input, spec_.type);
  engine_.enter();
  const std::size_t bytes = static_cast<std::size_t>(spec_.input.c) * size_of(spec_.type);
  const auto* const from = static_cast<const std::byte*>(x.data);
  auto* const into = static_cast<std::byte*>(buffer_.data());
  for_each_pixel([&](std::int64_t dense, std::int64_t strided) {
    std::memcpy(into + static_cast<std::size_t>(dense) * bytes,
                from + static_cast<std::size_t>(strided) * bytes, bytes);
  });
  return pixels(spec_.type);
}

AnyView PixelProducts::gradient(AnyView dx) {
  return gathers() ? pixels(spec_.input_gradient_type()) : dx;
}

void PixelProducts::scatter(AnyView dx) {
  if (!gathers()) return;
  require_shape("Convolution::backward_data", "dx", dx, spec_.input, spec_.input_gradient_type());
  const std::size_t element = size_of(spec_.input_gradient_type());
  const std::size_t bytes = static_cast<std::size_t>(spec_.input.c) * element;
  const auto* const from = static_cast<const std::byte*>(buffer_.data());
  auto* const into = static_cast<std::byte*>(dx.data);
  std::memset(into, 0, static_cast<std::size_t>(spec_.input.size()) * element);
  for_each_pixel([&](std::int64_t dense, std::int64_t strided) {
    std::memcpy(into + static_cast<std::size_t>(strided) * bytes,
                from + static_cast<std::size_t>(dense) * bytes, bytes);
  });
}

}  // namespace rondo::tensor

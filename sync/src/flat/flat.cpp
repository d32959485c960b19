// Compiled apart from the rest, with vectors and without contraction: see meson.build.

#include "flat/flat.hpp"

#include <array>
#include <bit>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace rondo::sync::flat {
namespace {

constexpr std::size_t lanes = 16;

}  // namespace

void add(std::span<float> into, std::span<const float> from) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = into[i] + from[i];
}

void add_scaled(std::span<float> into, float factor, std::span<const float> from) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = into[i] + factor * from[i];
}

void subtract(std::span<float> out, std::span<const float> a, std::span<const float> b) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = a[i] - b[i];
}

void sum_scaled(std::span<float> out, std::span<const float> a, float factor,
                std::span<const float> b) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = a[i] + factor * b[i];
}

void scale(std::span<float> values, float factor) {
  for (float& value : values) value = factor * value;
}

void scale(std::span<float> out, float factor, std::span<const float> from) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = factor * from[i];
}

// The upper half of the bits, plus one if the lower half is more than half of its range, or just
// half and the upper one odd. This sum could carry a NaN over to infinity or zero.
void round(std::span<transport::Bfloat16> out, std::span<const float> from) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(from[i]);
    const std::uint32_t nearest = bits + 0x7fffU + ((bits >> 16U) & 1U);
    const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
    out[i].bits = static_cast<std::uint16_t>((is_nan ? bits | 0x400000U : nearest) >> 16U);
  }
}

void widen(std::span<float> out, std::span<const transport::Bfloat16> from) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = std::bit_cast<float>(static_cast<std::uint32_t>(from[i].bits) << 16U);
  }
}

double dot(std::span<const float> a, std::span<const float> b) {
  std::array<double, lanes> sums{};
  const std::size_t whole = a.size() - a.size() % lanes;
  for (std::size_t i = 0; i < whole; i += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      sums[lane] += static_cast<double>(a[i + lane]) * static_cast<double>(b[i + lane]);
    }
  }
  for (std::size_t i = whole; i < a.size(); ++i) {
    sums[i - whole] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  double sum = 0.0;
  for (const double part : sums) sum += part;
  return sum;
}

void check_range(std::string_view name, std::size_t offset, std::size_t count, std::size_t size) {
  if (offset <= size && count <= size - offset) return;
  throw std::invalid_argument(std::string(name) + ": " + std::to_string(count) + " elements from " +
                              std::to_string(offset) + " on do not fit an array of " +
                              std::to_string(size));
}

}  // namespace rondo::sync::flat

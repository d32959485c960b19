// How parameters begin. Each element is a function of the seed, its parameter's name and its index
// alone, so that any rank can draw the part that it holds, and all agree.

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <stdexcept>
#include <string>
#include <string_view>

#include <Random123/philox.h>
#include <Random123/uniform.hpp>

#include <rondo/train/model.hpp>

#include "model/stretches.hpp"

namespace rondo::train {
namespace {

using Generator = r123::Philox4x32;
constexpr std::size_t lanes = 4;  // numbers that one call of the generator gives

std::uint32_t low(std::uint64_t word) { return static_cast<std::uint32_t>(word); }
std::uint32_t high(std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32U); }

// FNV-1a: names are few and short, and the value must never change between versions.
std::uint64_t hash_of(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char letter : name) {
    hash ^= static_cast<unsigned char>(letter);
    hash *= 0x100000001b3U;
  }
  return hash;
}

// Uniform in (0, 1): the numbers of elements 4 * block to 4 * block + 3.
std::array<double, lanes> uniform_block(std::uint64_t seed, std::uint64_t name,
                                        std::uint64_t block) {
  // The counter says which block of which parameter, the key which run: so nothing is drawn twice.
  const Generator::ctr_type counter{{low(block), high(block), low(name), high(name)}};
  const Generator::key_type key{{low(seed), high(seed)}};
  const Generator::ctr_type bits = Generator{}(counter, key);
  std::array<double, lanes> numbers{};
  for (std::size_t i = 0; i < lanes; ++i) numbers[i] = r123::u01<double>(bits[i]);
  return numbers;
}

// Box-Muller: two uniform numbers become two normal ones.
std::array<double, lanes> normal_of(std::array<double, lanes> uniform) {
  for (std::size_t i = 0; i < lanes; i += 2) {
    const double radius = std::sqrt(-2.0 * std::log(uniform[i]));
    const double angle = 2.0 * std::numbers::pi * uniform[i + 1];
    uniform[i] = radius * std::cos(angle);
    uniform[i + 1] = radius * std::sin(angle);
  }
  return uniform;
}

// kaiming_normal with fan_out, as torchvision's ResNets begin.
double he_deviation(const Parameter& parameter) {
  return std::sqrt(2.0 / static_cast<double>(parameter.fan_out));
}

// The bound that PyTorch's layers begin with when nobody says otherwise.
double uniform_bound(const Parameter& parameter) {
  return 1.0 / std::sqrt(static_cast<double>(parameter.fan_in));
}

std::array<double, lanes> scaled_block(const Parameter& parameter,
                                       std::array<double, lanes> uniform) {
  if (parameter.initial == Initial::he_normal) {
    uniform = normal_of(uniform);
    for (double& value : uniform) value *= he_deviation(parameter);
  } else {
    for (double& value : uniform) value = (2.0 * value - 1.0) * uniform_bound(parameter);
  }
  return uniform;
}

void check_size(std::string_view what, std::size_t given, std::size_t wanted) {
  if (given == wanted) return;
  throw std::invalid_argument("initialize: " + std::string(what) + " has " + std::to_string(given) +
                              " elements; the layout needs " + std::to_string(wanted));
}

}  // namespace

void draw_initial(const Parameter& parameter, std::uint64_t seed, std::size_t first,
                  std::span<float> values) {
  if (parameter.initial == Initial::zeros || parameter.initial == Initial::ones) {
    std::ranges::fill(values, parameter.initial == Initial::ones ? 1.0F : 0.0F);
    return;
  }
  const std::uint64_t name = hash_of(parameter.name);
  std::array<double, lanes> block{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t element = first + i;
    if (i == 0 || element % lanes == 0) {
      // A part may begin within a block of four.
      block = scaled_block(parameter, uniform_block(seed, name, element / lanes));
    }
    values[i] = static_cast<float>(block[element % lanes]);
  }
}

namespace {

// A slice of a grid is several stretches of the whole parameter: each is drawn at its place in it.
void draw_part(const Parameter& parameter, std::uint64_t seed, std::span<float> values) {
  for_each_stretch(parameter, [&](std::size_t in_part, std::size_t in_whole, std::size_t size) {
    draw_initial(parameter, seed, in_whole, values.subspan(in_part, size));
  });
}

}  // namespace

void initialize(const ParameterLayout& layout, std::uint64_t seed, std::span<float> parameters,
                std::span<float> statistics) {
  check_size("parameters", parameters.size(), layout.parameter_count);
  check_size("statistics", statistics.size(), layout.statistic_count);
  for (const Parameter& parameter : layout.parameters) {
    draw_part(parameter, seed, parameters.subspan(parameter.offset, parameter.size()));
  }
  for (const Parameter& statistic : layout.statistics) {
    draw_part(statistic, seed, statistics.subspan(statistic.offset, statistic.size()));
  }
}

}  // namespace rondo::train

// The loops of resample() in every variant that this CPU runs, beside sums of integers.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/resample_kernels.hpp"

namespace rondo::train::resample_kernels_test {
namespace {

constexpr std::int32_t one = 1 << 16;

// Weights of one new pixel, in units of 2^-16: their sum is one.
std::vector<std::int32_t> random_weights(std::size_t taps, std::mt19937& random) {
  std::vector<std::int32_t> weights;
  std::int32_t left = one;
  for (std::size_t tap = 0; tap + 1 < taps; ++tap) {
    weights.push_back(static_cast<std::int32_t>(random() % static_cast<unsigned>(left + 1)));
    left -= weights.back();
  }
  weights.push_back(left);
  return weights;
}

std::vector<float> as_shares(const std::vector<std::int32_t>& weights) {
  std::vector<float> shares;
  for (const std::int32_t weight : weights) shares.push_back(static_cast<float>(weight) / one);
  return shares;
}

std::vector<std::uint8_t> random_bytes(std::size_t count, std::mt19937& random) {
  std::vector<std::uint8_t> bytes(count);
  // Many of the largest values: there a sum would overflow first.
  for (std::uint8_t& byte : bytes) byte = random() % 4 == 0 ? 255 : std::uint8_t(random());
  return bytes;
}

// Variants by number; those that this CPU lacks are left out, as there is no way to run them.
class ResampleKernelsTest : public testing::TestWithParam<const ResampleKernels*> {};

TEST_P(ResampleKernelsTest, SumColumnsAsIntegersDo) {
  std::mt19937 random(1);
  for (std::size_t channels = 1; channels <= 4; ++channels) {
    for (std::size_t taps = 1; taps <= 7; ++taps) {
      const std::size_t pixels = 1 + random() % 70;
      const std::size_t old_pixels = taps + random() % 50;
      const std::vector<std::uint8_t> in = random_bytes(old_pixels * channels, random);
      std::vector<std::uint32_t> offsets;
      std::vector<std::int32_t> weights;
      std::vector<float> expected;
      for (std::size_t pixel = 0; pixel < pixels; ++pixel) {
        const std::size_t first = random() % (old_pixels - taps + 1);
        const std::vector<std::int32_t> own = random_weights(taps, random);
        offsets.push_back(static_cast<std::uint32_t>(first * channels));
        weights.insert(weights.end(), own.begin(), own.end());
        for (std::size_t c = 0; c < channels; ++c) {
          std::int32_t sum = one / 2;
          for (std::size_t tap = 0; tap < taps; ++tap) {
            sum += own[tap] * in[(first + tap) * channels + c];
          }
          expected.push_back(static_cast<float>(sum / one));
        }
      }
      const std::vector<float> shares = as_shares(weights);
      std::vector<float> widened(in.size() + taps * channels + 4);
      std::vector<float> out(pixels * channels + 4);

      GetParam()->columns({.in = in.data(),
                           .in_values = in.size(),
                           .widened = widened.data(),
                           .offsets = offsets.data(),
                           .weights = shares.data(),
                           .taps = taps,
                           .pixels = pixels,
                           .channels = channels,
                           .out = out.data()});

      out.resize(expected.size());
      EXPECT_EQ(out, expected) << channels << " channels, " << taps << " taps";
    }
  }
}

TEST_P(ResampleKernelsTest, SumRowsAsIntegersDo) {
  std::mt19937 random(2);
  for (std::size_t taps = 1; taps <= 6; ++taps) {
    for (const std::size_t values : {1U, 31U, 32U, 33U, 96U, 211U}) {
      const std::size_t stride = (values + row_block - 1) / row_block * row_block;
      const std::vector<std::uint8_t> bytes = random_bytes(taps * stride, random);
      const std::vector<float> rows(bytes.begin(), bytes.end());
      const std::vector<std::int32_t> weights = random_weights(taps, random);
      const std::vector<float> shares = as_shares(weights);
      std::vector<const float*> in;
      for (std::size_t tap = 0; tap < taps; ++tap) in.push_back(rows.data() + tap * stride);
      std::vector<std::uint8_t> expected;
      for (std::size_t i = 0; i < values; ++i) {
        std::int32_t sum = one / 2;
        for (std::size_t tap = 0; tap < taps; ++tap) sum += weights[tap] * bytes[tap * stride + i];
        expected.push_back(static_cast<std::uint8_t>(sum / one));
      }
      // Nothing is written behind the last value.
      expected.push_back(77);
      std::vector<std::uint8_t> out(values + 1, 77);

      GetParam()->rows({.in = in.data(),
                        .weights = shares.data(),
                        .taps = taps,
                        .values = values,
                        .out = out.data()});

      EXPECT_EQ(out, expected) << values << " values, " << taps << " taps";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, ResampleKernelsTest,
                         testing::ValuesIn(resample_kernels().begin(), resample_kernels().end()));

}  // namespace
}  // namespace rondo::train::resample_kernels_test

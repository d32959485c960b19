// Operations and types: every pair, on every instruction set, against plain arithmetic.

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "reduce/reduce.hpp"

namespace rondo::transport::reduction_test {
namespace {

constexpr std::size_t element_count = 2'053;  // odd, and longer than any unrolled loop
constexpr std::size_t source_count = 5;

std::vector<std::byte> random_bytes(std::size_t bytes, std::uint32_t seed) {
  std::vector<std::byte> data(bytes);
  std::uint32_t state = seed;
  for (std::byte& byte : data) {
    state = state * 1'664'525U + 1'013'904'223U;
    byte = static_cast<std::byte>(state >> 24U);
  }
  return data;
}

std::vector<std::byte> reduce_with(const ReductionTable& table, ElementType type, ReduceOp op) {
  std::vector<std::vector<std::byte>> sources;
  std::vector<const std::byte*> addresses;
  for (std::uint32_t s = 0; s < source_count; ++s) {
    sources.push_back(random_bytes(element_count * size_of(type), s + 1));
  }
  for (const auto& source : sources) addresses.push_back(source.data());
  std::vector<std::byte> result(element_count * size_of(type));
  std::byte* destination = result.data();
  table.find(type, op)(addresses.data(), source_count, &destination, 1, 0, element_count);
  return result;
}

// NaNs that meet: which of two payloads survives is the compiler's choice, so bits that encode a
// NaN are compared as "is a NaN".
bool is_nan(const std::byte* element, ElementType type) {
  if (type == ElementType::f32) {
    float value = 0;
    std::memcpy(&value, element, sizeof value);
    return std::isnan(value);
  }
  if (type == ElementType::f64) {
    double value = 0;
    std::memcpy(&value, element, sizeof value);
    return std::isnan(value);
  }
  std::uint16_t bits = 0;
  if (type == ElementType::bf16) std::memcpy(&bits, element, sizeof bits);
  return (bits & 0x7FFFU) > 0x7F80U;
}

class ReductionTest : public testing::TestWithParam<std::tuple<ElementType, ReduceOp>> {};

TEST_P(ReductionTest, GivesTheSameBitsOnEveryInstructionSet) {
  const auto [type, op] = GetParam();
  const std::vector<std::byte> expected = reduce_with(reduction_tables().front(), type, op);
  for (const ReductionTable& table : reduction_tables()) {
    if (!table.usable) continue;

    const std::vector<std::byte> result = reduce_with(table, type, op);

    const std::size_t bytes = size_of(type);
    for (std::size_t i = 0; i < result.size(); i += bytes) {
      const bool same = std::memcmp(&result[i], &expected[i], bytes) == 0 ||
                        (is_nan(&result[i], type) && is_nan(&expected[i], type));
      ASSERT_TRUE(same) << table.name << ", element " << i / bytes;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ReductionTest,
    testing::Combine(testing::Values(ElementType::f32, ElementType::f64, ElementType::bf16,
                                     ElementType::i32, ElementType::i64, ElementType::u8),
                     testing::Values(ReduceOp::sum, ReduceOp::min, ReduceOp::max)));

template <typename T>
T reduce_pair(T a, T b, ReduceOp op) {
  const std::byte* sources[] = {reinterpret_cast<const std::byte*>(&a),
                                reinterpret_cast<const std::byte*>(&b)};
  T result{};
  auto* destination = reinterpret_cast<std::byte*>(&result);
  find_reduction(type_of<T>(), op)(sources, 2, &destination, 1, 0, 1);
  return result;
}

TEST(ReductionValueTest, AddsAndCompares) {
  EXPECT_EQ(reduce_pair(3, 4, ReduceOp::sum), 7);
  EXPECT_EQ(reduce_pair(3, 4, ReduceOp::min), 3);
  EXPECT_EQ(reduce_pair(3.5, 4.5, ReduceOp::max), 4.5);
  EXPECT_EQ(reduce_pair<std::uint8_t>(200, 100, ReduceOp::max), 200);
}

TEST(ReductionValueTest, WrapsIntegersAround) {
  EXPECT_EQ(reduce_pair(std::numeric_limits<std::int32_t>::max(), 1, ReduceOp::sum),
            std::numeric_limits<std::int32_t>::min());
  EXPECT_EQ(reduce_pair<std::uint8_t>(200, 100, ReduceOp::sum), 44);
}

TEST(ReductionValueTest, PropagatesNaNFromEitherSide) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max}) {
    EXPECT_TRUE(std::isnan(reduce_pair(nan, 1.0F, op)));
    EXPECT_TRUE(std::isnan(reduce_pair(1.0F, nan, op)));
  }
}

Bfloat16 bf16(float value) {
  return {static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16U)};
}

float to_float(Bfloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16U);
}

TEST(ReductionValueTest, RoundsBfloat16ToNearestEven) {
  // 256 has a spacing of 2 in bfloat16: 256 + 1 lies in the middle, 258 + 1 too.
  EXPECT_EQ(to_float(reduce_pair(bf16(256.0F), bf16(1.0F), ReduceOp::sum)), 256.0F);
  EXPECT_EQ(to_float(reduce_pair(bf16(258.0F), bf16(1.0F), ReduceOp::sum)), 260.0F);
}

TEST(ReductionValueTest, AccumulatesBfloat16InFloat) {
  const Bfloat16 values[] = {bf16(256.0F), bf16(1.0F), bf16(1.0F)};
  const std::byte* sources[3];
  for (int i = 0; i < 3; ++i) sources[i] = reinterpret_cast<const std::byte*>(&values[i]);
  Bfloat16 result;
  auto* destination = reinterpret_cast<std::byte*>(&result);

  find_reduction(ElementType::bf16, ReduceOp::sum)(sources, 3, &destination, 1, 0, 1);

  EXPECT_EQ(to_float(result), 258.0F);  // pairwise rounding would give 256
}

TEST(ReductionValueTest, StoresIntoEveryDestinationAndNowhereElse) {
  std::vector<std::int32_t> a(100, 1);
  std::vector<std::int32_t> b(100, 2);
  std::byte* both[] = {reinterpret_cast<std::byte*>(a.data()),
                       reinterpret_cast<std::byte*>(b.data())};
  const std::byte* sources[] = {both[0], both[1]};

  find_reduction(ElementType::i32, ReduceOp::sum)(sources, 2, both, 2, 10, 90);

  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool inside = i >= 10 && i < 90;
    EXPECT_EQ(a[i], inside ? 3 : 1);
    EXPECT_EQ(b[i], inside ? 3 : 2);
  }
}

}  // namespace
}  // namespace rondo::transport::reduction_test

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
  if (size_of(type) == sizeof bits) std::memcpy(&bits, element, sizeof bits);
  if (type == ElementType::f16) return (bits & 0x7FFFU) > 0x7C00U;
  return type == ElementType::bf16 && (bits & 0x7FFFU) > 0x7F80U;
}

class ReductionTest : public testing::TestWithParam<std::tuple<ElementType, ReduceOp>> {};

TEST_P(ReductionTest, GivesTheSameBitsOnEveryInstructionSet) {
  const auto [type, op] = GetParam();
  const bool bits = op == ReduceOp::bit_and || op == ReduceOp::bit_or || op == ReduceOp::bit_xor;
  if (bits && !is_integer(type)) {
    EXPECT_EQ(find_reduction(type, op), nullptr);
    return;
  }
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
                                     ElementType::f16, ElementType::i8, ElementType::i16,
                                     ElementType::i32, ElementType::i64, ElementType::u8,
                                     ElementType::u16, ElementType::u32, ElementType::u64),
                     testing::Values(ReduceOp::sum, ReduceOp::min, ReduceOp::max, ReduceOp::prod,
                                     ReduceOp::avg, ReduceOp::bit_and, ReduceOp::bit_or,
                                     ReduceOp::bit_xor)));

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

TEST(ReductionValueTest, MultipliesAndJoinsBits) {
  EXPECT_EQ(reduce_pair(3.0, 0.5, ReduceOp::prod), 1.5);
  EXPECT_EQ(reduce_pair<std::int16_t>(-3, 7, ReduceOp::prod), -21);
  EXPECT_EQ(reduce_pair<std::uint16_t>(0xFFFF, 0xFFFF, ReduceOp::prod), 1);
  EXPECT_EQ(reduce_pair<std::uint32_t>(0xF0F0F0F0, 0xFF00FF00, ReduceOp::bit_and), 0xF000F000);
  EXPECT_EQ(reduce_pair<std::int64_t>(1, -2, ReduceOp::bit_or), -1);
  EXPECT_EQ(reduce_pair<std::int8_t>(-1, 1, ReduceOp::bit_xor), -2);
}

TEST(ReductionValueTest, AveragesTowardsZero) {
  EXPECT_EQ(reduce_pair(3.0F, 4.0F, ReduceOp::avg), 3.5F);
  EXPECT_EQ(reduce_pair<std::int32_t>(3, 4, ReduceOp::avg), 3);
  EXPECT_EQ(reduce_pair<std::int8_t>(-3, -4, ReduceOp::avg), -3);
  EXPECT_EQ(reduce_pair<std::uint64_t>(1ULL << 63U, 4, ReduceOp::avg), (1ULL << 62U) + 2);
}

// The numbers of ranks are -128, -56 and 0 as an i8.
TEST(ReductionValueTest, AveragesShortIntegersOfManyRanks) {
  const std::int8_t hundred = 100;
  const std::int8_t none = 0;
  for (const std::size_t ranks : {128U, 200U, 256U}) {
    std::vector<const std::byte*> sources(ranks, reinterpret_cast<const std::byte*>(&none));
    sources[0] = reinterpret_cast<const std::byte*>(&hundred);
    std::int8_t result = -1;
    auto* destination = reinterpret_cast<std::byte*>(&result);
    find_reduction(ElementType::i8, ReduceOp::avg)(sources.data(), ranks, &destination, 1, 0, 1);
    EXPECT_EQ(result, 0) << ranks;
  }
}

TEST(ReductionValueTest, DividesAsAveragesDo) {
  std::int16_t integers[] = {7, -7, 0};
  find_division(ElementType::i16)(reinterpret_cast<std::byte*>(integers), 3, 3);
  EXPECT_EQ(integers[0], 2);
  EXPECT_EQ(integers[1], -2);
  double reals[] = {1.0, 5.0};
  find_division(ElementType::f64)(reinterpret_cast<std::byte*>(reals), 2, 4);
  EXPECT_EQ(reals[0], 0.25);
  EXPECT_EQ(reals[1], 1.25);
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

// The compiler's own half is the reference.
float to_float(Float16 value) { return static_cast<float>(std::bit_cast<_Float16>(value.bits)); }
Float16 f16(float value) { return {std::bit_cast<std::uint16_t>(static_cast<_Float16>(value))}; }

TEST(ReductionValueTest, KeepsEveryFloat16ThatIsAddedToZero) {
  for (std::uint32_t bits = 0; bits <= 0xFFFFU; ++bits) {
    const Float16 value{static_cast<std::uint16_t>(bits)};
    const Float16 result = reduce_pair(value, Float16{}, ReduceOp::sum);
    const bool minus_zero = bits == 0x8000U;  // and plus zero is plus zero
    if (std::isnan(to_float(value))) {
      ASSERT_TRUE(std::isnan(to_float(result))) << bits;
    } else {
      ASSERT_EQ(result.bits, minus_zero ? 0U : bits);
    }
  }
}

TEST(ReductionValueTest, RoundsFloat16ToNearestEven) {
  std::uint32_t state = 1;
  for (int i = 0; i < 200'000; ++i) {
    state = state * 1'664'525U + 1'013'904'223U;
    const Float16 a{static_cast<std::uint16_t>(state >> 16U)};
    state = state * 1'664'525U + 1'013'904'223U;
    const Float16 b{static_cast<std::uint16_t>(state >> 16U)};
    const float expected = to_float(a) * to_float(b);
    const Float16 result = reduce_pair(a, b, ReduceOp::prod);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(to_float(result)));
    } else {
      ASSERT_EQ(result.bits, f16(expected).bits) << to_float(a) << " * " << to_float(b);
    }
  }
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

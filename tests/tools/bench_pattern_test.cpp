// Patterns that tell wrong elements from right ones, and the grid of ranks that halos need.

#include "bench/operation.hpp"

#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace rondo::tools::bench_pattern_test {
namespace {

using transport::Bfloat16;
using transport::ReduceOp;

template <typename T>
class PatternTest : public testing::Test {};

using Types = testing::Types<float, double, Bfloat16, std::int32_t, std::int64_t, std::uint8_t>;
TYPED_TEST_SUITE(PatternTest, Types);

TYPED_TEST(PatternTest, FindsItsOwnElementsRightAtAnyOffset) {
  const auto pattern = Pattern<TypeParam>::moved(3);
  std::vector<TypeParam> data(1000);

  pattern.fill(data, 777);

  EXPECT_EQ(pattern.count_wrong(data, 777), 0);
}

TYPED_TEST(PatternTest, CountsEachElementOnce) {
  const auto pattern = Pattern<TypeParam>::moved(0);
  std::vector<TypeParam> data(1000);
  pattern.fill(data);

  data[0] = data[500] = data[999] = element_of<TypeParam>(255);

  EXPECT_EQ(pattern.count_wrong(data), 3);
}

TYPED_TEST(PatternTest, FindsSpoiledElementsWrong) {
  std::vector<TypeParam> data(1000);

  spoil<TypeParam>(data);

  EXPECT_EQ(Pattern<TypeParam>::moved(5).count_wrong(data), 1000);
  EXPECT_EQ(Pattern<TypeParam>::reduced({0, 1, 2}, ReduceOp::sum).count_wrong(data), 1000);
}

TYPED_TEST(PatternTest, FindsAnotherRanksElementsWrong) {
  std::vector<TypeParam> data(1000);

  Pattern<TypeParam>::moved(1).fill(data);

  EXPECT_EQ(Pattern<TypeParam>::moved(2).count_wrong(data), 1000);
}

TYPED_TEST(PatternTest, SeesThatDataIsAPowerOfTwoBesideItsPlace) {
  const auto pattern = Pattern<TypeParam>::moved(0);
  std::vector<TypeParam> data(1000);

  for (std::size_t shift = 1; shift < 1U << 20U; shift *= 2) {
    pattern.fill(data, shift);
    EXPECT_GT(pattern.count_wrong(data), 0) << shift;
  }
}

TEST(PatternSumTest, AddsUpWhatAllRanksGive) {
  std::vector<float> sum(600, 0.0F);
  std::vector<float> one(600);
  for (const int rank : {0, 2, 4}) {
    Pattern<float>::given(rank).fill(one);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += one[i];
  }

  EXPECT_EQ(Pattern<float>::reduced({0, 2, 4}, ReduceOp::sum).count_wrong(sum), 0);
}

// What a bf16 cannot hold would be wrong by rounding alone.
TEST(PatternSumTest, StaysBelowWhatBfloat16HoldsOnManyRanks) {
  std::vector<int> ranks(1000);
  std::iota(ranks.begin(), ranks.end(), 0);
  std::vector<std::int64_t> sums(Pattern<std::int64_t>::period);

  Pattern<std::int64_t>::reduced(ranks, ReduceOp::sum).fill(sums);

  for (const std::int64_t sum : sums) EXPECT_LT(sum, 255);
}

TEST(ProcessGridTest, IsAsSquareAsTheNumberAllows) {
  EXPECT_EQ(ProcessGrid::of(4).rows, 2);
  EXPECT_EQ(ProcessGrid::of(6).rows, 2);
  EXPECT_EQ(ProcessGrid::of(6).columns, 3);
  EXPECT_EQ(ProcessGrid::of(16).rows, 4);
}

TEST(ProcessGridTest, IsARowForAPrime) {
  EXPECT_EQ(ProcessGrid::of(7).rows, 1);
  EXPECT_EQ(ProcessGrid::of(7).columns, 7);
}

TEST(ProcessGridTest, FindsNeighboursRowByRow) {
  const ProcessGrid grid = ProcessGrid::of(6);

  EXPECT_EQ(grid.neighbour(1, 1, 0), 4);
  EXPECT_EQ(grid.neighbour(1, 0, 1), 2);
  EXPECT_EQ(grid.neighbour(4, -1, -1), 0);
}

TEST(ProcessGridTest, EndsAtItsEdges) {
  const ProcessGrid grid = ProcessGrid::of(6);

  EXPECT_EQ(grid.neighbour(2, 0, 1), -1);
  EXPECT_EQ(grid.neighbour(0, -1, 0), -1);
  EXPECT_EQ(grid.neighbour(3, 1, -1), -1);
}

}  // namespace
}  // namespace rondo::tools::bench_pattern_test

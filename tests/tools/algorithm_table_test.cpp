#include "bench/algorithm_table.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace rondo::tools::algorithm_table_test {
namespace {

TEST(AlgorithmTableTest, ChangesWhereTheOtherBecomesFaster) {
  EXPECT_EQ(
      best_table({1024, 4096, 65536, 262144}, {{"rd", {1, 2, 30, 100}}, {"ring", {5, 5, 20, 40}}}),
      "rd:0-16k;ring:16k-max");
}

TEST(AlgorithmTableTest, KeepsOneThatIsAlwaysFaster) {
  EXPECT_EQ(best_table({1024, 4096}, {{"rd", {1, 2}}, {"ring", {5, 5}}}), "rd:0-max");
  EXPECT_EQ(best_table({1024, 4096}, {{"rd", {8, 9}}, {"ring", {5, 5}}}), "ring:0-max");
}

// A single slow sample must not cut the table into pieces.
TEST(AlgorithmTableTest, DoesNotReturnToWhatItLeft) {
  EXPECT_EQ(best_table({256, 1024, 4096, 16384, 65536},
                       {{"rd", {1, 6, 3, 20, 99}}, {"ring", {5, 5, 9, 9, 9}}}),
            "rd:0-8k;ring:8k-max");
}

TEST(AlgorithmTableTest, OrdersThreeAlgorithms) {
  EXPECT_EQ(best_table({1024, 4096, 16384}, {{"a", {1, 9, 9}}, {"b", {9, 1, 9}}, {"c", {9, 9, 1}}}),
            "a:0-2k;b:2k-8k;c:8k-max");
}

TEST(AlgorithmTableTest, RefusesToChooseAmongNothing) {
  EXPECT_THROW(static_cast<void>(best_table({}, {{"rd", {}}})), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(best_table({1024}, {})), std::invalid_argument);
}

TEST(AlgorithmTableTest, WritesSizesInWholeUnits) {
  EXPECT_EQ(short_size(0), "0");
  EXPECT_EQ(short_size(1000), "1000");
  EXPECT_EQ(short_size(1536 * 1024), "1536k");
  EXPECT_EQ(short_size(2 * 1024 * 1024), "2m");
}

}  // namespace
}  // namespace rondo::tools::algorithm_table_test

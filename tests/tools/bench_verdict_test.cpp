#include "bench/verdict.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rondo::tools::bench_verdict_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// 1 GB/s.
BenchRow right_row() {
  BenchRow row;
  row.bytes = 1000;
  row.memory = "arena";
  row.place = "in";
  row.time = {1.0, 1.0, 1.0};
  return row;
}

TEST(BenchVerdictTest, HasNothingToSayAboutARightRow) {
  EXPECT_THAT(complaints({right_row()}, 0.0), IsEmpty());
}

TEST(BenchVerdictTest, CountsWrongElementsAndSaysWhere) {
  BenchRow row = right_row();
  row.wrong = 3;

  EXPECT_THAT(complaints({right_row(), row}, 0.0),
              ElementsAre(AllOf(HasSubstr("1000 bytes"), HasSubstr("3 elements are wrong"))));
}

TEST(BenchVerdictTest, SaysWhichRowIsTooSlow) {
  BenchRow slow = right_row();
  slow.bytes = 500;

  EXPECT_THAT(complaints({right_row(), slow}, 1.0),
              ElementsAre(AllOf(HasSubstr("500 bytes"), HasSubstr("0.500 GB/s is below 1 GB/s"))));
}

}  // namespace
}  // namespace rondo::tools::bench_verdict_test

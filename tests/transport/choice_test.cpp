// Tables of algorithms: as text, and what they choose.

#include "collective/choice.hpp"

#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rondo::transport::choice_test {
namespace {

TEST(AlgorithmTableTest, ChoosesDoublingForWhatIsShortByDefault) {
  const AlgorithmTable table;

  EXPECT_EQ(table.print(), "rd:0-16k;ring:16k-max");
  EXPECT_EQ(table.pick(0), AllreduceAlgorithm::doubling);
  EXPECT_EQ(table.pick((16U << 10U) - 1), AllreduceAlgorithm::doubling);
  EXPECT_EQ(table.pick(16U << 10U), AllreduceAlgorithm::ring);
  EXPECT_EQ(table.pick(~std::size_t{0}), AllreduceAlgorithm::ring);
}

TEST(AlgorithmTableTest, PrintsWhatItParsed) {
  for (const char* text : {"ring:0-max", "rd:0-max", "rd:0-100;ring:100-2m;rd:2m-1g;ring:1g-max",
                           "ring:0-1;rd:1-1025;ring:1025-max"}) {
    EXPECT_EQ(AlgorithmTable::parse(text).print(), text);
  }
}

TEST(AlgorithmTableTest, ChoosesByTheRangeThatHoldsTheBytes) {
  const AlgorithmTable table = AlgorithmTable::parse("ring:0-1k;rd:1k-1m;ring:1m-max");

  EXPECT_EQ(table.pick(1023), AllreduceAlgorithm::ring);
  EXPECT_EQ(table.pick(1024), AllreduceAlgorithm::doubling);
  EXPECT_EQ(table.pick((1U << 20U) - 1), AllreduceAlgorithm::doubling);
  EXPECT_EQ(table.pick(1U << 20U), AllreduceAlgorithm::ring);
}

struct Wrong {
  const char* text;
  const char* why;
};

class WrongTableTest : public testing::TestWithParam<Wrong> {};

TEST_P(WrongTableTest, IsRejectedWithWhatIsWrong) {
  try {
    static_cast<void>(AlgorithmTable::parse(GetParam().text));
    FAIL() << "took " << GetParam().text;
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(GetParam().why));
    EXPECT_THAT(error.what(), testing::HasSubstr("expected something like"));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Texts, WrongTableTest,
    testing::Values(Wrong{"", "it ends before max"}, Wrong{"rd:0-16k", "it ends before max"},
                    Wrong{"tree:0-max", "no algorithm \"tree\""},
                    Wrong{"rd:0-16k;ring:17k-max", "must begin at 16k"},
                    Wrong{"rd:1-max", "must begin at 0"}, Wrong{"rd:0-0;ring:0-max", "is empty"},
                    Wrong{"rd:0-16q;ring:16q-max", "\"16q\" is not a number of bytes"},
                    Wrong{"rd:0-;ring:0-max", "\"\" is not a number of bytes"},
                    Wrong{"rd:0-99999999999999g;ring:1-max", "is not a number of bytes"},
                    Wrong{"rd", "\"rd\" is not NAME:FROM-TO"},
                    Wrong{"rd:0-max;ring:1-max", "comes after max"},
                    Wrong{"rd:0-1;rd:1-2;rd:2-3;rd:3-4;rd:4-5;rd:5-6;rd:6-7;rd:7-8;rd:8-max",
                          "more than 8 ranges"}));

}  // namespace
}  // namespace rondo::transport::choice_test

#include "bench/byte_sizes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exit_status.hpp"

namespace rondo::tools::byte_sizes_test {
namespace {

using testing::ElementsAre;

TEST(ByteSizesTest, GoesUpByFactorsOfFour) {
  EXPECT_THAT(byte_sizes("4:64"), ElementsAre(4U, 16U, 64U));
}

TEST(ByteSizesTest, EndsAtTheLastStepThatFits) {
  EXPECT_THAT(byte_sizes("4:60"), ElementsAre(4U, 16U));
}

TEST(ByteSizesTest, TakesOneSizeAlone) { EXPECT_THAT(byte_sizes("1K"), ElementsAre(1024U)); }

TEST(ByteSizesTest, KnowsTheSuffixesAsPowersOf1024) {
  EXPECT_THAT(byte_sizes("16K:1M"), ElementsAre(16384U, 65536U, 262144U, 1048576U));
  EXPECT_THAT(byte_sizes("1g"), ElementsAre(1073741824U));
}

TEST(ByteSizesTest, EndsExactlyAtItsMaximum) {
  EXPECT_EQ(byte_sizes("4:64M").back(), 64U * 1024U * 1024U);
}

TEST(ByteSizesTest, TakesOnlyWholeElements) {
  EXPECT_THAT(byte_sizes("5", 1), ElementsAre(5U));
  EXPECT_THROW(static_cast<void>(byte_sizes("4:64", 8)), UsageError);
}

class ByteSizesMisuseTest : public testing::TestWithParam<const char*> {};

TEST_P(ByteSizesMisuseTest, IsRefused) {
  EXPECT_THROW(static_cast<void>(byte_sizes(GetParam())), UsageError);
}

INSTANTIATE_TEST_SUITE_P(Texts, ByteSizesMisuseTest,
                         testing::Values("", "x", "4:", ":4", "0", "5", "8:4", "4T", "4MB", "-4",
                                         "99999999999G", "4:8:16"));

}  // namespace
}  // namespace rondo::tools::byte_sizes_test

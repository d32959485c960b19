// The grammar of sizes.

#include "options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "failure.hpp"

namespace rondo::tools::options_test {
namespace {

using testing::ElementsAre;

class BytesTest : public testing::TestWithParam<std::pair<const char*, std::uint64_t>> {};

TEST_P(BytesTest, AreReadAs) { EXPECT_EQ(parse_bytes(GetParam().first), GetParam().second); }

INSTANTIATE_TEST_SUITE_P(, BytesTest,
                         testing::Values(std::pair("0", 0U), std::pair("7", 7U),
                                         std::pair("7B", 7U), std::pair("64K", 65536U),
                                         std::pair("64KB", 65536U), std::pair("64KiB", 65536U),
                                         std::pair("64ki", 65536U), std::pair("1m", 1U << 20U),
                                         std::pair("16GiB", std::uint64_t{16} << 30U),
                                         std::pair("2T", std::uint64_t{2} << 40U),
                                         std::pair("1e", std::uint64_t{1} << 60U)));

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
                         testing::Values("", "x", "4:", ":4", "0", "5", "8:4", "4T", "4MX", "4iB",
                                         "K", "1.5K", "-4", "99999999999G", "99999999999999999999",
                                         "17E", "4:8:16"));

}  // namespace
}  // namespace rondo::tools::options_test

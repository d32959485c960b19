// The hash by which ranks and runs are compared.

#include "trainer/agreement.hpp"

#include <span>
#include <vector>

#include <gtest/gtest.h>

namespace rondo::train::parameter_hash_test {
namespace {

TEST(ParameterHashTest, IsXxh3OfOneHundredAndTwentyEightBits) {
  EXPECT_EQ(to_text(hash_of({})), "99aa06d3014798d86001c324468d497f");  // the published value
}

TEST(ParameterHashTest, ArraysCountAsOneAfterTheOther) {
  const std::vector<float> all{1.0F, 2.0F, 3.0F};
  const auto span = std::span(all);

  EXPECT_EQ(hash_of({span.first(1), span.last(2)}), hash_of({span}));
}

TEST(ParameterHashTest, SeesASingleBit) {
  const std::vector<float> plus{1.0F, 0.0F};
  const std::vector<float> minus{1.0F, -0.0F};

  EXPECT_NE(hash_of({plus}), hash_of({minus}));
}

TEST(ParameterHashTest, TextIsHexadecimalInOrder) {
  EXPECT_EQ(to_text({0x01, 0x23, 0xab, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff}),
            "0123ab000000000000000000000000ff");
}

}  // namespace
}  // namespace rondo::train::parameter_hash_test

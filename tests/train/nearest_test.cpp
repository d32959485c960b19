// Which word a typing error was meant to be.

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "model/names.hpp"

namespace rondo::train::nearest_test {
namespace {

TEST(NearestTest, CountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("epochs", "epochs"), 0U);
}

TEST(NearestTest, CountsSwappedNeighboursOnce) {
  EXPECT_EQ(edit_distance("gloabl", "global"), 1U);
  EXPECT_EQ(edit_distance("ab", "ba"), 1U);
}

TEST(NearestTest, FindsTheNearestOfSeveral) {
  const std::vector<std::string> words = {"seed", "speed", "threads"};

  EXPECT_EQ(nearest("sed", words), "seed");
  EXPECT_EQ(nearest("thread", words), "threads");
}

TEST(NearestTest, GivesUpOnWhatIsFar) {
  const std::vector<std::string> words = {"sgd", "epochs"};

  EXPECT_EQ(nearest("momentum", words), "");
  EXPECT_EQ(nearest("ab", words), "");
  EXPECT_EQ(nearest(std::string(100'000, 'x'), words), "");
  EXPECT_EQ(nearest("", words), "");
}

TEST(NearestTest, ListsAllWhenNoneIsNear) {
  const std::vector<std::string> words = {"spin", "yield"};

  EXPECT_EQ(suggest("spinn", words), "did you mean 'spin'?");
  EXPECT_EQ(suggest("frobnicate", words), "choose one of spin, yield");
}

}  // namespace
}  // namespace rondo::train::nearest_test

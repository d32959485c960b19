// How links find the registration of a message in an arena that has grown piece by piece.

#include <array>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "links/registered_memory.hpp"

namespace rondo::transport::registered_memory_test {
namespace {

/// Pieces of 100 bytes, which begin at 0, 100 and 200, and one at 400. A registration is the text
/// "begin-end".
class RegisteredMemoryTest : public testing::Test {
 protected:
  struct Registration {
    std::string text;
    explicit operator bool() const { return !text.empty(); }
  };

  RegisteredMemoryTest() {
    for (const std::size_t begin : {200U, 0U, 400U, 100U}) {
      memory_.add(at(begin), 100, {text_of(begin, 100)});
    }
  }
  /// What is found for a message; "" for nothing.
  std::string find(std::size_t begin, std::size_t end) {
    const auto join = [this](const void* base, std::size_t bytes) {
      const auto first = static_cast<const std::byte*>(base) - bytes_.data();
      joined_.push_back(text_of(static_cast<std::size_t>(first), bytes));
      return Registration{can_join_ ? joined_.back() : std::string()};
    };
    const Registration* found = memory_.find(at(begin), end - begin, join);
    return found == nullptr ? std::string() : found->text;
  }

  std::vector<std::string> joined_;
  bool can_join_ = true;

 private:
  static std::string text_of(std::size_t begin, std::size_t bytes) {
    return std::to_string(begin) + "-" + std::to_string(begin + bytes);
  }
  [[nodiscard]] const void* at(std::size_t offset) const { return bytes_.data() + offset; }

  std::array<std::byte, 1000> bytes_{};
  RegisteredMemory<Registration> memory_;
};

TEST_F(RegisteredMemoryTest, FindsThePieceOfAMessage) {
  EXPECT_EQ(find(0, 100), "0-100");
  EXPECT_EQ(find(150, 160), "100-200");
  EXPECT_EQ(find(299, 300), "200-300");
  EXPECT_TRUE(joined_.empty());
}

// Such a message was registered anew each time.
TEST_F(RegisteredMemoryTest, JoinsPiecesForTheFirstMessageOverTheirSeam) {
  for (int i = 0; i < 3; ++i) EXPECT_EQ(find(90, 110), "0-200");
  EXPECT_EQ(find(20, 30), "0-200");
  EXPECT_EQ(find(120, 130), "100-200");

  EXPECT_EQ(joined_, std::vector<std::string>{"0-200"});
}

TEST_F(RegisteredMemoryTest, JoinsAsManyPiecesAsAMessageTouches) {
  EXPECT_EQ(find(199, 201), "100-300");
  EXPECT_EQ(find(99, 300), "0-300");
  EXPECT_EQ(find(99, 101), "0-300");

  EXPECT_EQ(joined_, (std::vector<std::string>{"100-300", "0-300"}));
}

TEST_F(RegisteredMemoryTest, FindsNothingForWhatLiesOutside) {
  EXPECT_EQ(find(250, 301), "");
  EXPECT_EQ(find(300, 310), "");
  EXPECT_EQ(find(290, 410), "");
  EXPECT_EQ(find(499, 501), "");
  EXPECT_TRUE(joined_.empty());
}

TEST_F(RegisteredMemoryTest, FindsNothingWhereJoiningFails) {
  can_join_ = false;

  EXPECT_EQ(find(90, 110), "");
  EXPECT_EQ(find(90, 100), "0-100");
}

}  // namespace
}  // namespace rondo::transport::registered_memory_test

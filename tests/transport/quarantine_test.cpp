// What an arena does with memory that a peer may still store into.

#include <cstddef>
#include <memory>

#include <gtest/gtest.h>

#include "shm/arena.hpp"
#include "shm/memory.hpp"

namespace rondo::transport::quarantine_test {
namespace {

constexpr std::size_t block_bytes = 4096;

class QuarantineTest : public testing::Test {
 protected:
  std::size_t allocate() { return arena_.offset_of(arena_.allocate(block_bytes, 64), block_bytes); }
  void free(std::size_t offset) { arena_.deallocate(memory_->arena().base() + offset); }
  void quarantine(std::size_t offset, std::size_t bytes) {
    arena_.quarantine(offset, bytes, [this] { return over_; });
  }

  std::shared_ptr<shm::RankMemory> memory_ =
      shm::RankMemory::create({.control_bytes = 1U << 20U, .arena_bytes = 1U << 26U}, 1);
  ArenaCore arena_{memory_};
  bool over_ = false;
};

TEST_F(QuarantineTest, WhatIsFreedThereIsHandedOutOnlyAfterwards) {
  const std::size_t first = allocate();
  quarantine(first + 100, 1);
  free(first);

  EXPECT_NE(allocate(), first);
  over_ = true;
  EXPECT_EQ(allocate(), first);
}

TEST_F(QuarantineTest, WhatLiesBesideItIsUsedAgainAtOnce) {
  const std::size_t first = allocate();
  const std::size_t second = allocate();
  const std::size_t third = allocate();
  quarantine(second, block_bytes);

  free(first);
  EXPECT_EQ(allocate(), first);
  free(third);
  EXPECT_EQ(allocate(), third);
}

TEST_F(QuarantineTest, WhatIsFreedAfterItsEndIsFree) {
  const std::size_t first = allocate();
  quarantine(first, block_bytes);
  over_ = true;
  free(first);

  EXPECT_EQ(arena_.used_bytes(), 0U);
  EXPECT_EQ(allocate(), first);
}

TEST_F(QuarantineTest, WhatIsFreedDuringItCountsAsUsed) {
  const std::size_t first = allocate();
  quarantine(first, block_bytes);
  free(first);

  EXPECT_EQ(arena_.used_bytes(), block_bytes);
}

}  // namespace
}  // namespace rondo::transport::quarantine_test

// Which ranges of an arena are handed out, what becomes of those into which a peer may still store,
// and the scratch of operations, which is taken there.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/world.hpp>

#include "collective/algorithms.hpp"
#include "memory/arena.hpp"
#include "memory/memory.hpp"

namespace rondo::transport::arena_ranges_test {
namespace {

TEST(RangeAllocatorTest, HandsOutNothingUntilItIsExtended) {
  RangeAllocator ranges;
  EXPECT_EQ(ranges.allocate(1, 1), RangeAllocator::npos);

  ranges.extend(100);

  EXPECT_EQ(ranges.allocate(100, 1), 0U);
  EXPECT_EQ(ranges.allocate(1, 1), RangeAllocator::npos);
}

TEST(RangeAllocatorTest, HandsOutNoMoreThanThereIsWhateverTheNumber) {
  RangeAllocator ranges;
  ranges.extend(1024);
  (void)ranges.allocate(1, 1);

  EXPECT_EQ(ranges.allocate(~std::size_t{0} - 200, 256), RangeAllocator::npos);
  EXPECT_EQ(ranges.used_bytes(), 1U);
}

TEST(RangeAllocatorTest, AlignsWhatItHandsOut) {
  RangeAllocator ranges;
  ranges.extend(1024);
  (void)ranges.allocate(1, 1);

  EXPECT_EQ(ranges.allocate(64, 256), 256U);
  EXPECT_EQ(ranges.allocate(200, 1), 1U);  // the gap that alignment left
}

TEST(RangeAllocatorTest, KeepsLiveRangesApartUnderRandomUse) {
  RangeAllocator ranges;
  ranges.extend(10'000);
  std::map<std::size_t, std::size_t> live;
  std::uint32_t state = 1;
  const auto random = [&] { return state = state * 1'664'525U + 1'013'904'223U; };
  std::size_t used = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (random() >> 31U == 0 || live.empty()) {
      const std::size_t bytes = 1 + (random() >> 8U) % 300;
      const std::size_t at = ranges.allocate(bytes, std::size_t{1} << ((random() >> 8U) % 7));
      if (at == RangeAllocator::npos) continue;
      const auto after = live.lower_bound(at);
      ASSERT_TRUE(after == live.end() || at + bytes <= after->first);
      ASSERT_TRUE(after == live.begin() ||
                  std::prev(after)->first + std::prev(after)->second <= at);
      live.emplace(at, bytes);
      used += bytes;
    } else {
      auto victim = std::next(live.begin(), (random() >> 8U) % live.size());
      ranges.deallocate(victim->first);
      used -= victim->second;
      live.erase(victim);
    }
    ASSERT_EQ(ranges.used_bytes(), used);
  }
  for (const auto& [at, bytes] : live) ranges.deallocate(at);
  EXPECT_EQ(ranges.allocate(10'000, 1), 0U);
}

// 30 MiB that are free at the end and 20 more are 50; 30 and 50 would be more than there are.
TEST(ArenaCoreTest, GrowsByWhatIsMissingAtItsEnd) {
  constexpr std::size_t mebibyte = std::size_t{1} << 20U;
  const auto memory =
      shm::RankMemory::create({.control_bytes = mebibyte, .arena_bytes = 64 * mebibyte}, 1);
  ArenaCore arena(memory);
  void* const first = arena.allocate(30 * mebibyte, 64);
  arena.deallocate(first);

  EXPECT_EQ(arena.allocate(50 * mebibyte, 64), first);
}

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

class ScratchTest : public testing::Test {
 protected:
  static constexpr std::size_t mebibyte = std::size_t{1} << 20U;
  static constexpr std::size_t reserved = 64 * mebibyte;

  [[nodiscard]] bool lies_in_arena(std::span<const std::byte> memory) const {
    return arena_.contains(memory.data(), memory.size());
  }

  std::shared_ptr<shm::RankMemory> memory_ =
      shm::RankMemory::create({.control_bytes = mebibyte, .arena_bytes = reserved}, 1);
  std::unique_ptr<ArenaCore> core_ = std::make_unique<ArenaCore>(memory_);
  ArenaCore& ranges_ = *core_;
  SharedArena arena_{std::move(core_)};
  std::optional<Scratch> scratch_{std::in_place, &arena_};
};

TEST_F(ScratchTest, LiesInTheArenaUntilItEnds) {
  EXPECT_EQ(arena_.used_bytes(), 0U) << "it is taken when it is first needed";

  EXPECT_TRUE(lies_in_arena(scratch_->take(mebibyte)));
  EXPECT_EQ(arena_.used_bytes(), mebibyte);

  scratch_.reset();
  EXPECT_EQ(arena_.used_bytes(), 0U);
}

TEST_F(ScratchTest, IsTheSameMemoryForWhatIsNoLarger) {
  const std::span<std::byte> first = scratch_->take(mebibyte);

  EXPECT_EQ(scratch_->take(mebibyte).data(), first.data());
  EXPECT_EQ(scratch_->take(100).data(), first.data());
  EXPECT_EQ(arena_.used_bytes(), mebibyte);
}

// Both together would not fit.
TEST_F(ScratchTest, IsNotKeptTwiceWhenItGrows) {
  static_cast<void>(scratch_->take(30 * mebibyte));

  EXPECT_TRUE(lies_in_arena(scratch_->take(50 * mebibyte)));
  EXPECT_EQ(arena_.used_bytes(), 50 * mebibyte);
}

// A peer that was stopped in the middle of a step may still touch it.
TEST_F(ScratchTest, StaysInQuarantineAfterItsEnd) {
  bool over = false;
  const std::span<std::byte> taken = scratch_->take(mebibyte);
  ranges_.quarantine(ranges_.offset_of(taken.data(), 1), 1, [&over] { return over; });

  scratch_.reset();

  EXPECT_EQ(arena_.used_bytes(), mebibyte);
  over = true;
  EXPECT_EQ(Scratch(&arena_).take(mebibyte).data(), taken.data());
}

TEST_F(ScratchTest, IsOrdinaryMemoryWhenTheArenaIsFull) {
  const std::span<std::byte> memory = scratch_->take(2 * reserved);

  EXPECT_FALSE(lies_in_arena(memory));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % 64, 0U);
  EXPECT_EQ(arena_.used_bytes(), 0U);
}

}  // namespace
}  // namespace rondo::transport::arena_ranges_test

#include "shm/arena.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace rondo::transport::range_allocator_test {
namespace {

TEST(RangeAllocatorTest, HandsOutNothingUntilItIsExtended) {
  RangeAllocator ranges;
  EXPECT_EQ(ranges.allocate(1, 1), RangeAllocator::npos);

  ranges.extend(100);

  EXPECT_EQ(ranges.allocate(100, 1), 0U);
  EXPECT_EQ(ranges.allocate(1, 1), RangeAllocator::npos);
}

TEST(RangeAllocatorTest, AlignsWhatItHandsOut) {
  RangeAllocator ranges;
  ranges.extend(1024);
  (void)ranges.allocate(1, 1);

  EXPECT_EQ(ranges.allocate(64, 256), 256U);
  EXPECT_EQ(ranges.allocate(200, 1), 1U);  // the gap that alignment left
}

TEST(RangeAllocatorTest, JoinsNeighboursThatAreFreed) {
  RangeAllocator ranges;
  ranges.extend(300);
  const auto a = ranges.allocate(100, 1);
  const auto b = ranges.allocate(100, 1);
  const auto c = ranges.allocate(100, 1);

  ranges.deallocate(a);
  ranges.deallocate(c);
  ranges.deallocate(b);

  EXPECT_EQ(ranges.allocate(300, 1), 0U);
}

TEST(RangeAllocatorTest, JoinsWhatItIsExtendedByWithTheFreeEnd) {
  RangeAllocator ranges;
  ranges.extend(100);
  (void)ranges.allocate(60, 1);

  ranges.extend(200);

  EXPECT_EQ(ranges.allocate(140, 1), 60U);
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

}  // namespace
}  // namespace rondo::transport::range_allocator_test

// The thread behind the Loader: who writes which buffer, and what happens to its errors.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include "data/prefetcher.hpp"

namespace rondo::train::prefetcher_test {
namespace {

// The range whose step is `step`.
SampleRange range(std::int64_t step) { return {.epoch = 0, .step = step, .first = 0, .last = 1}; }

TEST(PrefetcherTest, GivesTheBufferInWhichTheRangeWasPrepared) {
  std::array<std::int64_t, 2> buffers = {};
  Prefetcher prefetcher(
      [&](const SampleRange& wanted, std::size_t i) { buffers.at(i) = wanted.step; });

  for (std::int64_t step = 1; step < 100; ++step) {
    if (step % 3 != 0) prefetcher.announce(range(step));
    EXPECT_EQ(buffers.at(prefetcher.take(range(step))), step);
  }
}

TEST(PrefetcherTest, DoesNotWriteTheBufferThatItsOwnerHolds) {
  std::array<std::int64_t, 2> buffers = {};
  Prefetcher prefetcher(
      [&](const SampleRange& wanted, std::size_t i) { buffers.at(i) = wanted.step; });

  for (std::int64_t step = 1; step < 100; ++step) {
    const std::size_t held = prefetcher.take(range(step));
    prefetcher.announce(range(1000 + step));
    prefetcher.announce(range(step + 1));
    EXPECT_EQ(buffers.at(held), step);
  }
}

TEST(PrefetcherTest, PreparesAnAnnouncedRangeOnce) {
  std::atomic<int> calls = 0;
  Prefetcher prefetcher([&](const SampleRange&, std::size_t) { ++calls; });

  for (std::int64_t step = 0; step < 50; ++step) {
    prefetcher.announce(range(step));
    prefetcher.announce(range(step));
    static_cast<void>(prefetcher.take(range(step)));
  }

  EXPECT_EQ(calls, 50);
}

TEST(PrefetcherTest, ThrowsWhatPreparingThrew) {
  Prefetcher prefetcher([](const SampleRange& wanted, std::size_t) {
    if (wanted.step == 1) throw std::runtime_error("bad image");
  });

  prefetcher.announce(range(1));
  EXPECT_THROW(static_cast<void>(prefetcher.take(range(1))), std::runtime_error);
  EXPECT_THROW(static_cast<void>(prefetcher.take(range(1))), std::runtime_error);
  EXPECT_NO_THROW(static_cast<void>(prefetcher.take(range(2))));
}

TEST(PrefetcherTest, ForgetsTheFailureOfARangeThatNobodyTakes) {
  Prefetcher prefetcher([](const SampleRange& wanted, std::size_t) {
    if (wanted.step == 1) throw std::runtime_error("bad image");
  });

  prefetcher.announce(range(1));

  EXPECT_NO_THROW(static_cast<void>(prefetcher.take(range(2))));
}

}  // namespace
}  // namespace rondo::train::prefetcher_test

#include <rondo/transport/world.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/error.hpp>

#include "support/world.hpp"

namespace rondo::transport::arena_test {
namespace {

TEST(SharedArenaTest, KnowsWhatLiesInIt) {
  test::World(1).run([](World& world) {
    std::pmr::vector<int> inside(1000, &world.arena());
    std::vector<int> outside(1000);

    EXPECT_TRUE(world.arena().contains(inside.data(), inside.size() * sizeof(int)));
    EXPECT_FALSE(world.arena().contains(outside.data(), sizeof(int)));
    EXPECT_FALSE(world.arena().contains(inside.data(), std::size_t{1} << 30U));
  });
}

TEST(SharedArenaTest, AlignsToCacheLines) {
  test::World(1).run([](World& world) {
    for (std::size_t bytes = 1; bytes < 200; bytes += 7) {
      void* block = world.arena().allocate(bytes, 1);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 64, 0U);
    }
  });
}

TEST(SharedArenaTest, UsesAgainWhatWasFreed) {
  test::World(1).run([](World& world) {
    void* first = world.arena().allocate(5'000'000, 64);
    world.arena().deallocate(first, 5'000'000, 64);

    EXPECT_EQ(world.arena().used_bytes(), 0U);
    EXPECT_EQ(world.arena().allocate(5'000'000, 64), first);
  });
}

TEST(SharedArenaTest, GivesZeroedMemoryAtFirst) {
  test::World(1).run([](World& world) {
    const auto* data = static_cast<const std::byte*>(world.arena().allocate(3'000'000, 64));
    for (std::size_t i = 0; i < 3'000'000; ++i) ASSERT_EQ(data[i], std::byte{0});
  });
}

TEST(SharedArenaTest, ThrowsWhenMemoryIsExhausted) {
  test::World(1).run([](World& world) {
    try {
      (void)world.arena().allocate(std::numeric_limits<std::size_t>::max() / 4, 64);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::out_of_memory);
    }
    EXPECT_NE(world.arena().allocate(64, 64), nullptr);
  });
}

}  // namespace
}  // namespace rondo::transport::arena_test

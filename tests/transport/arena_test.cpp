// Memory that peers reach: how it is handed out, and whose it is after a failure.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <latch>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>
#include <rondo/transport/team.hpp>
#include <rondo/transport/world.hpp>

#include "support/expect_error.hpp"
#include "support/world.hpp"

namespace rondo::transport::arena_test {
namespace {

using namespace std::chrono_literals;

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

// Links have registered it there; elsewhere they would have to for each message.
TEST(SharedArenaTest, HoldsTheScratchOfARingUntilItsCommunicatorEnds) {
  test::World(test::Backend::shm_nodes, 2).run([](World& world) {
    std::vector<float> data(100'000, 1.0F);
    std::optional<Communicator> comm(world.communicator().dup());
    const std::size_t before = world.arena().used_bytes();

    comm->allreduce(std::span(data)).wait();
    const std::size_t used = world.arena().used_bytes();
    comm->allreduce(std::span(data)).wait();

    EXPECT_GE(used - before, data.size() * sizeof(float)) << "two slots for halves";
    EXPECT_EQ(world.arena().used_bytes(), used);
    comm.reset();
    EXPECT_EQ(world.arena().used_bytes(), before);
  });
}

TEST(SharedArenaTest, ThrowsWhenMemoryIsExhausted) {
  test::World(1).run([](World& world) {
    test::expect_error(Errc::out_of_memory, [&] {
      (void)world.arena().allocate(std::numeric_limits<std::size_t>::max() / 4, 64);
    });
    EXPECT_THROW((void)world.arena().allocate(64, std::size_t{4} << 20U), Error);
    EXPECT_NE(world.arena().allocate(64, 64), nullptr);
  });
}

// So many bytes that their number overflows when it is rounded up, or when an offset is added.
TEST(SharedArenaTest, RefusesMoreThanAnyMemoryHas) {
  test::World(1).run([](World& world) {
    void* const first = world.arena().allocate(64, 64);
    const std::size_t used = world.arena().used_bytes();
    for (const std::size_t less : {0U, 63U, 64U, 100U, 4096U}) {
      EXPECT_THROW((void)world.arena().allocate(std::numeric_limits<std::size_t>::max() - less, 64),
                   Error)
          << less;
      EXPECT_EQ(world.arena().used_bytes(), used) << less;
    }
    EXPECT_NE(world.arena().allocate(64, 64), first);
  });
}

// Buffers of operations that have failed: they are their owner's again, whatever peers do later.

using Floats = std::pmr::vector<float>;

constexpr std::size_t elements = std::size_t{1} << 18U;  // several tiles for each rank

WorldOptions short_deadline() {
  WorldOptions options = test::quick_options();
  options.deadline = 200ms;
  return options;
}

struct Case {
  const char* name;
  std::function<Request(Communicator&, std::span<float>)> post;
};

class FailedMemoryTest : public testing::TestWithParam<Case> {};

// Ranks 0 and 1 give up, and use their memory for something else, or free it and allocate anew;
// then rank 2 comes.
TEST_P(FailedMemoryTest, APeerThatPostsLateStoresNothingThere) {
  for (const bool allocates_anew : {false, true}) {
    std::latch gave_up(2);
    std::latch over(3);
    test::World(3, short_deadline()).run([&](World& world) {
      std::optional<Floats> data(std::in_place, elements, 1.0F, &world.arena());
      const bool late = world.rank() == 2;
      if (late) gave_up.wait();

      EXPECT_TRUE(test::error_of(GetParam().post(world.communicator(), *data)));

      if (!late && allocates_anew) data.emplace(elements, 42.0F, &world.arena());
      if (!late) std::ranges::fill(*data, 42.0F);
      if (!late) gave_up.count_down();
      over.arrive_and_wait();
      EXPECT_TRUE(test::all_are(*data, late ? 1.0F : 42.0F));
    });
  }
}

// Rank 2 posts in time, but does its part only when the others' buffers hold something else.
TEST_P(FailedMemoryTest, APeerThatIsLateWithItsPartReportsTheFailureNotWhatIsThereNow) {
  std::latch posted(1);
  std::latch gave_up(2);
  std::latch over(3);
  test::World(3, short_deadline()).run([&](World& world) {
    Floats data(elements, 1.0F, &world.arena());
    const bool late = world.rank() == 2;
    if (!late) posted.wait();
    Request request = GetParam().post(world.communicator(), data);
    if (late) posted.count_down();
    if (late) gave_up.wait();

    EXPECT_TRUE(test::error_of(std::move(request)));

    if (!late) std::ranges::fill(data, 42.0F);
    if (!late) gave_up.count_down();
    over.arrive_and_wait();
    if (!late) {
      EXPECT_TRUE(test::all_are(data, 42.0F));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Shm, FailedMemoryTest,
    testing::Values(
        Case{"allreduce",
             [](Communicator& ranks, std::span<float> data) { return ranks.allreduce(data); }},
        Case{"reduce", [](Communicator& ranks,
                          std::span<float> data) { return ranks.reduce(data, data, 0); }},
        Case{"broadcast",
             [](Communicator& ranks, std::span<float> data) { return ranks.broadcast(data, 0); }},
        Case{"allgather",
             [](Communicator& ranks, std::span<float> data) {
               const std::size_t part = data.size() / 4;
               return ranks.allgather(
                   data.subspan(static_cast<std::size_t>(ranks.rank()) * part, part),
                   data.first(3 * part));
             }},
        Case{"reduce_scatter",
             [](Communicator& ranks, std::span<float> data) {
               const std::size_t part = data.size() / 4;
               return ranks.reduce_scatter(data.first(3 * part), data.last(part));
             }}),
    [](const auto& test) { return std::string(test.param.name); });

/// Two threads that are one. A rank that says so is held inside its next step, as if it had been
/// stopped there.
class HoldingTeam final : public Team {
 public:
  [[nodiscard]] int size() const noexcept override { return 2; }
  void run(void (*part)(void* context, int index), void* context) override {
    if (hold_next) {
      hold_next = false;
      held.count_down();
      released.wait();
    }
    for (int i = 0; i < size(); ++i) part(context, i);
  }

  std::latch held{1};
  std::latch released{1};
  inline static thread_local bool hold_next = false;
};

TEST(FailedMemoryTest, WhatAStoppedPeerWorksOnIsNotAllocatedAgainBeforeItIsOver) {
  HoldingTeam team;
  WorldOptions options = short_deadline();
  options.team = &team;
  std::latch over(2);
  test::World(2, options).run([&](World& world) {
    std::optional<Floats> data(std::in_place, elements, 1.0F, &world.arena());
    HoldingTeam::hold_next = world.rank() == 1;
    Request request = world.communicator().allreduce(std::span(*data));
    if (world.rank() == 1) {
      EXPECT_TRUE(test::error_of(std::move(request)));
      over.arrive_and_wait();
      return;
    }
    team.held.wait();

    EXPECT_TRUE(test::error_of(std::move(request)));

    const float* const before = data->data();
    data.emplace(elements, 42.0F, &world.arena());
    EXPECT_TRUE(data->data() >= before + elements || data->data() + elements <= before);
    team.released.count_down();
    over.arrive_and_wait();
    EXPECT_TRUE(test::all_are(*data, 42.0F));
    data.emplace(elements, 42.0F, &world.arena());
    EXPECT_EQ(data->data(), before) << "what is out of quarantine is used again";
  });
}

}  // namespace
}  // namespace rondo::transport::arena_test

// Memory that was allocated elsewhere and is adopted by the arena: what stays as it was, what can
// be done with it, and what cannot be adopted.

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>
#include <rondo/transport/world.hpp>

#include "support/world.hpp"

namespace rondo::transport::adoption_test {
namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t elements = 100'000;  // several tiles, and no whole number of pages

// Pages of its own, with a buffer that begins and ends within one.
class Buffer {
 public:
  explicit Buffer(std::size_t count = elements, std::size_t offset = 64)
      : bytes_((offset + count * sizeof(float) + 2 * page) / page * page),
        pages_(static_cast<std::byte*>(
            ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))),
        data_{reinterpret_cast<float*>(pages_ + offset), count} {}
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { ::munmap(pages_, bytes_); }

  [[nodiscard]] std::span<float> data() const { return data_; }
  [[nodiscard]] std::span<std::byte> bytes() const { return std::as_writable_bytes(data_); }
  [[nodiscard]] std::span<std::byte> pages() const { return {pages_, bytes_}; }

 private:
  std::size_t bytes_;
  std::byte* pages_;
  std::span<float> data_;
};

bool contains(World& world, const Buffer& buffer) {
  return world.arena().contains(buffer.data().data(), buffer.bytes().size());
}

TEST(AdoptionTest, KeepsAddressesAndContents) {
  test::World(1).run([](World& world) {
    const Buffer buffer;
    std::ranges::fill(buffer.pages(), std::byte{7});
    std::iota(buffer.data().begin(), buffer.data().end(), 0.0F);
    const std::vector<std::byte> before(buffer.pages().begin(), buffer.pages().end());
    EXPECT_FALSE(contains(world, buffer));

    AdoptedMemory adopted = world.adopt(buffer.bytes());

    EXPECT_EQ(adopted.memory().data(), buffer.bytes().data());
    EXPECT_TRUE(contains(world, buffer));
    EXPECT_TRUE(std::ranges::equal(before, buffer.pages()));
    buffer.data()[17] = -1.0F;

    adopted.release();

    EXPECT_TRUE(adopted.memory().empty());
    EXPECT_FALSE(contains(world, buffer));
    EXPECT_EQ(world.arena().used_bytes(), 0U);
    EXPECT_EQ(std::exchange(buffer.data()[17], 17.0F), -1.0F);
    EXPECT_TRUE(std::ranges::equal(before, buffer.pages()));
  });
}

TEST(AdoptionTest, OfNothingIsNothing) {
  test::World(1).run([](World& world) {
    EXPECT_TRUE(world.adopt({}).memory().empty());
    EXPECT_EQ(world.arena().used_bytes(), 0U);
  });
}

// Returns how many bytes the ranks moved, which tells the protocol.
std::uint64_t allreduce(World& world, std::span<float> data) {
  std::ranges::fill(data, static_cast<float>(world.rank() + 1));
  world.communicator().barrier().wait();
  const Counters before = world.counters();
  world.communicator().allreduce(data, data).wait();
  EXPECT_TRUE(test::all_are(data, static_cast<float>(world.size() * (world.size() + 1) / 2)));
  return world.counters().moved_bytes() - before.moved_bytes();
}

class AdoptionOnNodesTest : public testing::TestWithParam<test::Backend> {};

TEST_P(AdoptionOnNodesTest, IsReducedAsTheArenaIs) {
  test::World(GetParam(), 3).run([](World& world) {
    std::pmr::vector<float> arena(elements, &world.arena());
    const Buffer buffer;
    const std::uint64_t moved_in_arena = allreduce(world, arena);
    const std::uint64_t moved_before = allreduce(world, buffer.data());

    AdoptedMemory adopted = world.adopt(buffer.bytes());
    EXPECT_EQ(allreduce(world, buffer.data()), moved_in_arena);
    EXPECT_EQ(allreduce(world, buffer.data().subspan(1000, 50'001)) > 0, moved_in_arena > 0);

    adopted.release();
    EXPECT_EQ(allreduce(world, buffer.data()), moved_before);
  });
}

TEST_P(AdoptionOnNodesTest, ServesEveryCollective) {
  test::World(GetParam(), 3).run([](World& world) {
    const Buffer in(300'000);
    const Buffer out(300'000);
    const AdoptedMemory adopted[] = {world.adopt(in.bytes()), world.adopt(out.bytes())};
    const std::span<float> share = out.data().first(100'000);
    const auto rank = static_cast<float>(world.rank());
    Communicator& ranks = world.communicator();

    std::ranges::fill(in.data(), rank);
    ranks.reduce_scatter(std::span<const float>(in.data()), share).wait();
    EXPECT_TRUE(test::all_are(share, 3.0F));
    std::ranges::fill(share, rank);
    ranks.allgather(std::span<const float>(share), in.data()).wait();
    for (std::size_t r = 0; r < 3; ++r) {
      EXPECT_TRUE(test::all_are(in.data().subspan(r * 100'000, 100'000), static_cast<float>(r)));
    }
    ranks.alltoall(std::span<const float>(in.data()), out.data()).wait();
    EXPECT_TRUE(test::all_are(out.data(), rank));
    ranks.broadcast(out.data(), 2).wait();
    EXPECT_TRUE(test::all_are(out.data(), 2.0F));
    ranks.reduce(std::span<const float>(out.data()), in.data(), 1).wait();
    if (world.rank() == 1) {
      EXPECT_TRUE(test::all_are(in.data(), 6.0F));
    }
  });
}

TEST_P(AdoptionOnNodesTest, ServesMessages) {
  test::World(GetParam(), 2).run([](World& world) {
    const Buffer out;
    const Buffer in;
    std::ranges::fill(out.data(), static_cast<float>(world.rank() + 1));
    const AdoptedMemory adopted[] = {world.adopt(out.bytes()), world.adopt(in.bytes())};
    const int peer = 1 - world.rank();

    Request received = world.communicator().recv(in.data(), peer, 3);
    world.communicator().send(std::span<const float>(out.data()), peer, 3).wait();
    received.wait();

    EXPECT_TRUE(test::all_are(in.data(), static_cast<float>(peer + 1)));
  });
}

const test::Backend backends[] = {
    test::Backend::shm,     test::Backend::shm_nodes, test::Backend::hierarchy, test::Backend::tcp,
#ifdef RONDO_TEST_UCX
    test::Backend::ucx_tcp,
#endif
#ifdef RONDO_TEST_OFI
    test::Backend::ofi_tcp,
#endif
};
INSTANTIATE_TEST_SUITE_P(Backends, AdoptionOnNodesTest, testing::ValuesIn(backends),
                         [](const auto& backend) { return test::name_of(backend.param); });

TEST(AdoptionTest, APlanCanBeStartedBeforeWhileAndAfter) {
  test::World(2).run([](World& world) {
    const Buffer buffer;
    Plan plan = world.communicator().plan_allreduce(buffer.data());
    std::ranges::fill(buffer.data(), 1.0F);

    plan.start().wait();
    EXPECT_TRUE(test::all_are(buffer.data(), 2.0F));
    AdoptedMemory adopted = world.adopt(buffer.bytes());
    plan.start().wait();
    EXPECT_TRUE(test::all_are(buffer.data(), 4.0F));
    adopted.release();
    plan.start().wait();
    EXPECT_TRUE(test::all_are(buffer.data(), 8.0F));
  });
}

TEST(AdoptionTest, AssignmentReleasesWhatItReplaces) {
  test::World(1).run([](World& world) {
    const Buffer first;
    const Buffer second;
    AdoptedMemory adopted = world.adopt(first.bytes());
    AdoptedMemory other = world.adopt(second.bytes());

    adopted = std::move(other);

    EXPECT_FALSE(contains(world, first));
    EXPECT_TRUE(contains(world, second));
    EXPECT_EQ(adopted.memory().data(), second.bytes().data());
  });
}

TEST(AdoptionTest, IsShared) {
  test::World(2).run([](World& world) {
    const Buffer buffer;
    const AdoptedMemory adopted = world.adopt(buffer.bytes());
    std::ranges::fill(buffer.data(), static_cast<float>(world.rank()));

    const auto views = world.communicator().share(buffer.data());
    world.communicator().barrier().wait();

    const int peer = 1 - world.rank();
    EXPECT_TRUE(test::all_are(views[static_cast<std::size_t>(peer)], static_cast<float>(peer)));
    world.communicator().barrier().wait();
  });
}

// Random buffers, adopted and released in a random order, while the arena is used, too.
TEST(AdoptionTest, ManyComeAndGo) {
  test::World(1).run([](World& world) {
    std::mt19937 random(5);
    std::vector<std::unique_ptr<Buffer>> buffers;
    for (std::size_t i = 0; i < 20; ++i) {
      buffers.push_back(std::make_unique<Buffer>(1 + random() % 20'000, 4 * (random() % 1000)));
      std::ranges::fill(buffers.back()->data(), static_cast<float>(i));
    }
    std::vector<AdoptedMemory> adopted(buffers.size());
    for (int turn = 0; turn < 500; ++turn) {
      const std::size_t i = random() % buffers.size();
      const std::pmr::vector<float> other(random() % 5000, 99.0F, &world.arena());
      if (adopted[i].memory().empty()) {
        adopted[i] = world.adopt(buffers[i]->bytes());
      } else {
        adopted[i].release();
      }
      ASSERT_TRUE(test::all_are(buffers[i]->data(), static_cast<float>(i)));
      ASSERT_EQ(contains(world, *buffers[i]), !adopted[i].memory().empty());
    }
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      EXPECT_TRUE(test::all_are(buffers[i]->data(), static_cast<float>(i)));
    }
  });
}

TEST(AdoptionTest, OutlivesTheWorld) {
  const Buffer buffer;
  std::ranges::fill(buffer.data(), 5.0F);
  std::optional<AdoptedMemory> adopted;
  test::World(1).run([&](World& world) { adopted = world.adopt(buffer.bytes()); });

  EXPECT_TRUE(test::all_are(buffer.data(), 5.0F));
  adopted.reset();
  EXPECT_TRUE(test::all_are(buffer.data(), 5.0F));
}

// Ranks 0 and 1 give up and release; then rank 2 comes.
TEST(AdoptionTest, APeerThatPostsLateStoresNothingThere) {
  using namespace std::chrono_literals;
  WorldOptions options = test::quick_options();
  options.deadline = 200ms;
  std::latch gave_up(2);
  std::latch over(3);
  test::World(3, options).run([&](World& world) {
    const Buffer buffer;
    std::ranges::fill(buffer.data(), 1.0F);
    AdoptedMemory adopted = world.adopt(buffer.bytes());
    const bool late = world.rank() == 2;
    if (late) gave_up.wait();

    EXPECT_THROW(world.communicator().allreduce(buffer.data(), buffer.data()).wait(), Error);

    adopted.release();
    if (!late) std::ranges::fill(buffer.data(), 42.0F);
    if (!late) gave_up.count_down();
    over.arrive_and_wait();
    EXPECT_TRUE(test::all_are(buffer.data(), late ? 1.0F : 42.0F));
  });
}

std::string why_not(World& world, std::span<std::byte> memory) {
  try {
    const AdoptedMemory adopted = world.adopt(memory);
    return "it was adopted";
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

TEST(AdoptionTest, RefusesWhatIsNotOrdinaryMemory) {
  test::World(1).run([](World& world) {
    const auto refuses = [&](std::span<std::byte> memory, const std::string& part) {
      const std::string why = why_not(world, memory);
      EXPECT_NE(why.find(part), std::string::npos) << why;
    };
    const Buffer buffer(3 * page);
    ::mprotect(buffer.pages().data(), page, PROT_READ);
    refuses(buffer.bytes(), "mapped as r--p");
    ::mprotect(buffer.pages().data(), page, PROT_READ | PROT_WRITE);
    ::munmap(buffer.pages().data() + page, page);
    refuses(buffer.bytes(), "not all of the memory is mapped");

    for (const std::uintptr_t from_end : {std::uintptr_t{10}, std::uintptr_t{page + 10}}) {
      const auto address = std::numeric_limits<std::uintptr_t>::max() - from_end;
      refuses({reinterpret_cast<std::byte*>(address), 4},
              from_end < page ? "last address" : "mapped");
    }

    void* shared = ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    refuses({static_cast<std::byte*>(shared), page}, "mapped as rw-s");
    ::munmap(shared, page);

    std::pmr::vector<std::byte> arena(page, &world.arena());
    refuses(arena, "lies in an arena");
    EXPECT_EQ(world.arena().used_bytes(), page);
  });
}

// The main thread's stack is the one that the kernel names.
TEST(AdoptionTest, RefusesTheStack) {
  std::vector<World> worlds = World::make_threads(1);
  // No local variable: the address sanitizer keeps those elsewhere.
  auto* const frame = static_cast<std::byte*>(__builtin_frame_address(0));
  const std::string why = why_not(worlds[0], std::span(frame, 1));
  EXPECT_NE(why.find("on the stack"), std::string::npos) << why;
}

// Such a stack is a mapping without a name.
TEST(AdoptionTest, RefusesTheOwnStackOfAThreadThatIsNotTheMainOne) {
  std::vector<World> worlds = World::make_threads(1);
  std::thread([&] {
    auto* const frame = static_cast<std::byte*>(__builtin_frame_address(0));
    const std::string why = why_not(worlds[0], std::span(frame, 1));
    EXPECT_NE(why.find("on the stack"), std::string::npos) << why;
  }).join();
}

// Its owner does not know of the release, and may have posted an operation on it.
TEST(AdoptionTest, WhatLiesBesideTheBufferStaysOrdinaryMemory) {
  test::World(1).run([](World& world) {
    const Buffer buffer;
    const std::span<std::byte> pages = buffer.pages();
    const std::size_t bytes = buffer.bytes().size();
    const AdoptedMemory adopted = world.adopt(buffer.bytes());
    const SharedArena& arena = world.arena();

    EXPECT_FALSE(arena.contains(pages.data(), 64));
    EXPECT_FALSE(arena.contains(pages.data() + 63, 2));
    EXPECT_TRUE(arena.contains(pages.data() + 64, bytes));
    EXPECT_FALSE(arena.contains(pages.data() + 64, bytes + 1));
    EXPECT_FALSE(arena.contains(pages.data() + 64 + bytes, 1));
  });
}

TEST(AdoptionTest, RefusesAPageThatIsAdoptedAlready) {
  test::World(1).run([](World& world) {
    const Buffer buffer;
    const std::span<std::byte> all = buffer.bytes();
    const AdoptedMemory adopted = world.adopt(all.first(100));
    EXPECT_NE(why_not(world, all).find("adopted already"), std::string::npos);
    EXPECT_NE(why_not(world, all.subspan(200, 8)).find("adopted already"), std::string::npos);
    EXPECT_EQ(why_not(world, all.subspan(page)), "it was adopted");
  });
}

}  // namespace
}  // namespace rondo::transport::adoption_test

// World::create() among processes without a World of their own, and several Worlds at a time.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <future>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <pthread.h>
#include <sys/mman.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>
#include <rondo/transport/world.hpp>

#include "support/error_text.hpp"
#include "support/processes.hpp"
#include "support/world.hpp"

namespace rondo::transport::create_test {
namespace {

constexpr std::size_t most_bytes = 4096;
constexpr std::size_t most_ranks = 8;

// An allgather of processes or threads, in memory that they share.
class SharedAllgather {
 public:
  explicit SharedAllgather(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {
    void* memory =
        ::mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    state_ = static_cast<State*>(memory);
    pthread_barrierattr_t attributes;
    ::pthread_barrierattr_init(&attributes);
    ::pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    ::pthread_barrier_init(&state_->barrier, &attributes, static_cast<unsigned>(ranks));
    ::pthread_barrierattr_destroy(&attributes);
  }
  SharedAllgather(const SharedAllgather&) = delete;
  SharedAllgather& operator=(const SharedAllgather&) = delete;
  ~SharedAllgather() { ::munmap(state_, sizeof(State)); }

  Allgather of(int rank) {
    return [this, rank](std::span<const std::byte> mine, std::span<std::byte> all) {
      const auto at = static_cast<std::size_t>(rank) * mine.size();
      ASSERT_LE(at + mine.size(), sizeof state_->bytes);
      std::memcpy(state_->bytes + at, mine.data(), mine.size());
      ::pthread_barrier_wait(&state_->barrier);
      std::memcpy(all.data(), state_->bytes, std::min(all.size(), ranks_ * mine.size()));
      ::pthread_barrier_wait(&state_->barrier);
    };
  }

 private:
  struct State {
    pthread_barrier_t barrier;
    std::byte bytes[most_bytes * most_ranks];
  };
  std::size_t ranks_;
  State* state_;
};

int sum_of_ranks(World& world) {
  std::pmr::vector<int> data(10'000, world.rank() + 1, &world.arena());
  world.communicator().allreduce(std::span(data)).wait();
  return data.back();
}

std::string error_of(int rank, int ranks, const Allgather& allgather) {
  return test::error_text<std::exception>(
      [&] { (void)World::create(rank, ranks, allgather, test::quick_options()); });
}

int own_rank() { return std::atoi(std::getenv("RONDO_RANK")); }

TEST(CreateTest, IsAWorldOfOneRank) {
  SharedAllgather shared(1);
  World world = World::create(0, 1, shared.of(0), test::quick_options());

  EXPECT_EQ(world.size(), 1);
  EXPECT_EQ(sum_of_ranks(world), 1);
}

TEST(CreateTest, JoinsProcesses) {
  constexpr int ranks = 3;
  SharedAllgather shared(ranks);
  test::expect_success(ranks, test::MeetingPlace{.coordinator = "of nobody"}, [&] {
    const int rank = own_rank();

    World world = World::create(rank, ranks, shared.of(rank), test::quick_options());

    EXPECT_EQ(world.rank(), rank);
    EXPECT_EQ(world.nodes(), 1);
    EXPECT_EQ(world.ranks()[static_cast<std::size_t>(rank)].pid, ::getpid());
    EXPECT_EQ(sum_of_ranks(world), 6);
  });
}

TEST(CreateTest, JoinsTheRanksOfTwoNodesThroughTheStoreOfRankZero) {
  constexpr int ranks = 4;
  SharedAllgather shared(ranks);
  test::expect_success(ranks, test::MeetingPlace{.coordinator = "of nobody"}, [&] {
    WorldOptions options = test::quick_options();
    options.fabric = {.name = "shm", .fake_nodes = 2};

    World world = World::create(own_rank(), ranks, shared.of(own_rank()), options);

    EXPECT_EQ(world.nodes(), 2);
    EXPECT_EQ(sum_of_ranks(world), 10);
  });
}

// RONDO_FAKE_NODES is for the ranks of the job, of which a World may have only some.
TEST(CreateTest, HasNoMoreFakeNodesThanRanks) {
  constexpr int ranks = 2;
  SharedAllgather shared(ranks);
  test::expect_success(ranks, test::MeetingPlace{.coordinator = "of nobody"}, [&] {
    ::setenv("RONDO_FAKE_NODES", "4", 1);
    ::setenv("RONDO_FABRIC", "shm", 1);

    World world = World::create(own_rank(), ranks, shared.of(own_rank()), test::quick_options());

    EXPECT_EQ(world.nodes(), ranks);
    EXPECT_EQ(sum_of_ranks(world), 3);
  });
}

// A World of all, and at the same time one of the even ranks and one of the odd ones.
TEST(CreateTest, AllowsSeveralWorldsAtATime) {
  constexpr int ranks = 4;
  SharedAllgather all(ranks);
  SharedAllgather even(2);
  SharedAllgather odd(2);
  test::expect_success(ranks, test::MeetingPlace{.coordinator = "of nobody"}, [&] {
    const int rank = own_rank();
    SharedAllgather& mine = rank % 2 == 0 ? even : odd;
    World whole = World::create(rank, ranks, all.of(rank), test::quick_options());
    std::optional half(World::create(rank / 2, 2, mine.of(rank / 2), test::quick_options()));
    std::vector<int> ours{rank};
    std::vector<int> theirs{rank};

    Request first = whole.communicator().allreduce(std::span(ours));
    Request second = half->communicator().allreduce(std::span(theirs));
    second.wait();
    first.wait();

    EXPECT_EQ(ours[0], 6);
    EXPECT_EQ(theirs[0], rank % 2 == 0 ? 2 : 4);
    half.reset();
    EXPECT_EQ(sum_of_ranks(whole), 10);
  });
}

TEST(CreateTest, JoinsThreadsInSeveralWorlds) {
  SharedAllgather first(2);
  SharedAllgather second(2);
  const auto be_rank = [&](int rank) {
    World one = World::create(rank, 2, first.of(rank), test::quick_options());
    World two = World::create(1 - rank, 2, second.of(1 - rank), test::quick_options());
    EXPECT_EQ(sum_of_ranks(two), 3);
    EXPECT_EQ(sum_of_ranks(one), 3);
  };
  auto other = std::async(std::launch::async, be_rank, 1);
  be_rank(0);
  other.get();
}

// The others must not wait in an exchange that the failed rank never comes to.
TEST(CreateTest, TellsAllRanksOfAProblemOfOne) {
  constexpr int ranks = 3;
  SharedAllgather shared(ranks);
  test::expect_success(ranks, test::MeetingPlace{.coordinator = "of nobody"}, [&] {
    if (own_rank() == 1) ::setenv("RONDO_LATENCY_US", "much", 1);

    const std::string error = error_of(own_rank(), ranks, shared.of(own_rank()));

    EXPECT_THAT(error, testing::StartsWith("rank 1: "));
    EXPECT_THAT(error, testing::HasSubstr("RONDO_LATENCY_US"));
  });
}

TEST(CreateTest, PassesOnWhatTheExchangeThrows) {
  const Allgather broken = [](std::span<const std::byte>, std::span<std::byte>) {
    throw std::runtime_error("MPI is down");
  };

  EXPECT_EQ(error_of(0, 2, broken), "MPI is down");
}

TEST(CreateTest, RefusesARankThatIsNone) {
  const Allgather unused = [](std::span<const std::byte>, std::span<std::byte>) {};

  EXPECT_THROW((void)World::create(2, 2, unused), std::invalid_argument);
  EXPECT_THROW((void)World::create(-1, 2, unused), std::invalid_argument);
  EXPECT_THROW((void)World::create(0, 0, unused), std::invalid_argument);
}

// Bytes that do not come from rank 0 of the same version are an error, not a job.
TEST(CreateTest, RefusesWhatIsNoJob) {
  const Allgather garbage = [](std::span<const std::byte>, std::span<std::byte> all) {
    std::memset(all.data(), 'x', all.size());
  };

  EXPECT_THAT(error_of(1, 2, garbage), testing::HasSubstr("is no job"));
}

}  // namespace
}  // namespace rondo::transport::create_test

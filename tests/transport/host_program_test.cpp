// Ranks that a host program brings together: World::create().
//
// The host program is another World here: its allgather joins the ranks of the second one.

#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>
#include <rondo/transport/world.hpp>

#include "support/processes.hpp"

namespace rondo::transport::host_program_test {
namespace {

using Bytes = std::span<const std::uint8_t>;

/// Gathers over `ranks`, as a program with MPI would by MPI_Allgather.
Allgather over(Communicator& ranks) {
  return [&ranks](std::span<const std::byte> mine, std::span<std::byte> all) {
    ASSERT_EQ(all.size(), mine.size() * static_cast<std::size_t>(ranks.size()));
    const Bytes in(reinterpret_cast<const std::uint8_t*>(mine.data()), mine.size());
    const std::span<std::uint8_t> out(reinterpret_cast<std::uint8_t*>(all.data()), all.size());
    ranks.allgather(in, out).wait();
  };
}

void expect_sum(World& world, int expected) {
  std::pmr::vector<int> shared(50'000, world.rank() + 1, &world.arena());
  world.communicator().allreduce(std::span(shared)).wait();
  EXPECT_TRUE(test::all_are(shared, expected));
}

std::string error_of(int rank, const Allgather& allgather) {
  try {
    (void)World::create(rank, 2, allgather);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

TEST(HostProgramTest, BringsRanksTogetherBesideAWorldOfItsOwn) {
  for (const int ranks : {1, 2, 4}) {
    test::expect_success(ranks, [ranks](World& host) {
      World world = World::create(host.rank(), host.size(), over(host.communicator()));

      EXPECT_EQ(world.rank(), host.rank());
      EXPECT_EQ(world.size(), host.size());
      expect_sum(world, ranks * (ranks + 1) / 2);
      expect_sum(host, ranks * (ranks + 1) / 2);
    });
  }
}

TEST(HostProgramTest, MakesWorldsOfGroupsThatLiveTogether) {
  test::expect_success(4, [](World& host) {
    Communicator group = host.communicator().split(host.rank() % 2);
    World first = World::create(group.rank(), group.size(), over(group));
    World second = World::create(group.rank(), group.size(), over(group));

    for (int i = 0; i < 20; ++i) {
      expect_sum(second, 3);
      expect_sum(first, 3);
      expect_sum(host, 10);
    }
  });
}

TEST(HostProgramTest, JoinsNodesOverAStore) {
  WorldOptions options = test::quick_options();
  options.fabric = {.name = "shm", .fake_nodes = 2};
  test::expect_success(4, [&options](World& host) {
    World world = World::create(host.rank(), host.size(), over(host.communicator()), options);

    EXPECT_EQ(world.nodes(), 2);
    expect_sum(world, 10);
  });
}

TEST(HostProgramTest, PassesOnWhatTheExchangeThrows) {
  const Allgather broken = [](std::span<const std::byte>, std::span<std::byte>) {
    throw std::runtime_error("MPI is down");
  };

  EXPECT_EQ(error_of(0, broken), "MPI is down");
}

TEST(HostProgramTest, RefusesARankThatIsNone) {
  const Allgather unused = [](std::span<const std::byte>, std::span<std::byte>) {};

  EXPECT_THROW((void)World::create(2, 2, unused), std::invalid_argument);
  EXPECT_THROW((void)World::create(-1, 2, unused), std::invalid_argument);
  EXPECT_THROW((void)World::create(0, 0, unused), std::invalid_argument);
}

// Bytes that do not come from rank 0 of the same version are an error, not a job.
TEST(HostProgramTest, RefusesWhatIsNoJob) {
  const Allgather garbage = [](std::span<const std::byte>, std::span<std::byte> all) {
    std::memset(all.data(), 'x', all.size());
  };

  EXPECT_THAT(error_of(1, garbage), testing::HasSubstr("is no job"));
}

}  // namespace
}  // namespace rondo::transport::host_program_test

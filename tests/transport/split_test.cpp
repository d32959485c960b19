// Communicators made from communicators.

#include <cstddef>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>

#include "support/world.hpp"

namespace rondo::transport::split_test {
namespace {

std::vector<int> ranks_of(Communicator& group, int value) {
  std::vector<int> all(static_cast<std::size_t>(group.size()));
  const std::vector<int> mine{value};
  group.allgather(mine, std::span(all)).wait();
  return all;
}

TEST(SplitTest, PutsRanksOfOneColorTogether) {
  test::World(5).run([](Communicator& comm) {
    Communicator group = comm.split(comm.rank() % 2);

    const std::vector<int> expected =
        comm.rank() % 2 == 0 ? std::vector{0, 2, 4} : std::vector{1, 3};
    EXPECT_EQ(ranks_of(group, comm.rank()), expected);
  });
}

TEST(SplitTest, OrdersByKeyThenByRank) {
  test::World(4).run([](Communicator& comm) {
    Communicator group = comm.split(0, comm.rank() == 3 ? -1 : 0);

    EXPECT_EQ(ranks_of(group, comm.rank()), (std::vector{3, 0, 1, 2}));
    EXPECT_EQ(group.members(), (std::vector{3, 0, 1, 2}));
    EXPECT_EQ(group.rank(), comm.rank() == 3 ? 0 : comm.rank() + 1);
  });
}

TEST(SplitTest, LetsRanksStayOut) {
  for (const test::Backend backend : {test::Backend::shm, test::Backend::hierarchy}) {
    test::World(backend, 5).run([](Communicator& comm) {
      for (int repetition = 0; repetition < 20; ++repetition) {
        // Another rank stays out each time; the last one uses the other form.
        const int outside = repetition % 4;
        if (comm.rank() == 4) {
          Communicator group = comm.split(7);
          EXPECT_EQ(group.size(), 4);
          EXPECT_EQ(ranks_of(group, comm.rank()).size(), 4U);
          continue;
        }
        const bool stays_out = comm.rank() == outside;
        std::optional<Communicator> group =
            comm.split(stays_out ? std::nullopt : std::optional(7), -comm.rank());
        ASSERT_EQ(group.has_value(), !stays_out);
        if (group) {
          EXPECT_EQ(ranks_of(*group, comm.rank()).size(), 4U);
        }
      }
      comm.barrier().wait();
    });
  }
}

TEST(SplitTest, MakesNoGroupWhenAllStayOut) {
  test::World(3).run([](Communicator& comm) {
    EXPECT_FALSE(comm.split(std::nullopt).has_value());
    EXPECT_EQ(ranks_of(comm, comm.rank()), (std::vector{0, 1, 2}));
  });
}

TEST(SplitTest, DuplicatesACommunicator) {
  test::World(4).run([](Communicator& comm) {
    Communicator turned = comm.split(0, -comm.rank());
    Communicator copy = turned.dup();

    EXPECT_EQ(copy.rank(), turned.rank());
    EXPECT_EQ(ranks_of(copy, comm.rank()), (std::vector{3, 2, 1, 0}));
    // Operations of the two have no order among each other.
    std::vector<int> data(10, 1);
    Request first = comm.rank() % 2 == 0 ? copy.barrier() : turned.allreduce(std::span(data));
    Request second = comm.rank() % 2 == 0 ? turned.allreduce(std::span(data)) : copy.barrier();
    second.wait();
    first.wait();
    EXPECT_TRUE(test::all_are(data, 4));
  });
}

TEST(SplitTest, SplitsWhatWasSplit) {
  test::World(8).run([](Communicator& comm) {
    Communicator half = comm.split(comm.rank() / 4);
    Communicator quarter = half.split(half.rank() / 2);
    std::vector<int> data{comm.rank()};

    quarter.allreduce(std::span(data)).wait();

    EXPECT_EQ(quarter.size(), 2);
    EXPECT_EQ(data[0], comm.rank() / 2 * 4 + 1);
  });
}

// A retired control block is offered again, with other members and other sequences.
TEST(SplitTest, SurvivesHundredsOfGroupsThatComeAndGo) {
  test::World(4).run([](World& world) {
    Communicator& comm = world.communicator();
    std::optional<Communicator> kept;
    for (int i = 0; i < 300; ++i) {
      Communicator group = comm.split((comm.rank() + i) % 2, i % 3 == 0 ? -comm.rank() : 0);
      // Small, direct and staged by turns.
      auto* memory =
          test::resource(world, i % 4 == 3 ? test::Memory::ordinary : test::Memory::arena);
      std::pmr::vector<int> data(i % 2 == 0 ? 3 : 5'000, 1, memory);
      for (int k = 0; k <= i % 20; ++k) {
        std::fill(data.begin(), data.end(), k);
        group.allreduce(std::span(data)).wait();
        ASSERT_TRUE(test::all_are(data, 2 * k));
      }
      if (i % 7 == 0) kept.emplace(std::move(group));
    }
  });
}

// A message for a group that had the number of the World itself would end the World's receive. One
// rank alone: it has the same numbers, and nobody to wait for.
TEST(SplitTest, KeepsMessagesApartForAHundredThousandGroups) {
  test::World(1).run([](Communicator& comm) {
    std::vector<int> last{0};
    Request expected = comm.recv(std::span(last), 0);
    for (int i = 1; i <= 100'000; ++i) {
      Communicator group = comm.split(0);
      std::vector<int> in{0};
      const std::vector<int> out{i};
      Request received = group.recv(std::span(in), 0);
      group.send(std::span(out), 0).wait();
      received.wait();
      ASSERT_EQ(in[0], i);
    }
    const std::vector<int> out{-1};
    comm.send(std::span(out), 0).wait();
    expected.wait();
    EXPECT_EQ(last[0], -1);
  });
}

// The numbers that ranks give to their communicators are then not the same.
TEST(SplitTest, KeepsMessagesApartWhenSomeRanksHaveMadeMoreGroups) {
  for (const test::Backend backend : {test::Backend::shm, test::Backend::hierarchy}) {
    test::World(backend, 4).run([](Communicator& comm) {
      const int next = (comm.rank() + 1) % comm.size();
      const int previous = (comm.rank() + comm.size() - 1) % comm.size();
      Communicator half = comm.split(comm.rank() % 2);
      std::vector<Communicator> more;
      for (int i = 0; i < comm.rank() % 2 * 3; ++i) more.push_back(half.split(0));

      Communicator again = comm.split(0);
      for (Communicator* group : {&comm, &again}) {
        std::vector<int> in{0};
        const std::vector<int> out{comm.rank()};
        Request received = group->recv(std::span(in), previous);
        group->send(std::span(out), next).wait();
        received.wait();
        EXPECT_EQ(in[0], previous);
        std::vector<int> sum(10'000, 1);
        group->allreduce(std::span(sum)).wait();
        EXPECT_TRUE(test::all_are(sum, 4));
      }
    });
  }
}

TEST(SplitTest, OutlivesItsParent) {
  test::World(3).run([](World& world) {
    std::optional<Communicator> group;
    {
      World ended = std::move(world);
      group.emplace(ended.communicator().split(0));
    }
    std::vector<int> data{1};

    group->allreduce(std::span(data)).wait();

    EXPECT_EQ(data[0], 3);
  });
}

TEST(SplitTest, RefusesANegativeColor) {
  test::World(1).run(
      [](Communicator& comm) { EXPECT_THROW((void)comm.split(-1), std::invalid_argument); });
}

}  // namespace
}  // namespace rondo::transport::split_test

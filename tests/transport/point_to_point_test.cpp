// The promises of send, recv, sendrecv and signals, on every kind of link.

#include <malloc.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>

#include "support/expect_error.hpp"
#include "support/world.hpp"

namespace rondo::transport::point_to_point_test {
namespace {

using namespace std::chrono_literals;
using test::Backend;
using test::Memory;
using testing::Combine;
using testing::Values;

// Parameters: backend, ranks, and what a suite has besides.
template <typename... More>
class LinksTest : public testing::TestWithParam<std::tuple<Backend, int, More...>> {
 protected:
  test::World world() const { return {std::get<0>(this->GetParam()), ranks()}; }
  int ranks() const { return std::get<1>(this->GetParam()); }
  int next(const World& world) const { return (world.rank() + 1) % ranks(); }
  int previous(const World& world) const { return (world.rank() + ranks() - 1) % ranks(); }
};

class PointToPointTest : public LinksTest<Memory> {
 protected:
  Memory memory() const { return std::get<2>(GetParam()); }

  template <typename T>
  std::pmr::vector<T> buffer(World& world, std::size_t elements, T first) const {
    std::pmr::vector<T> data(elements, T{}, test::resource(world, memory()));
    std::iota(data.begin(), data.end(), first);
    return data;
  }
};

// Tests of messages whose memory does not matter.
using MessagesTest = LinksTest<>;

constexpr std::size_t sizes[] = {0, 1, 7, 14, 15, 1000, 2048, 10'007, 300'001};

TEST_P(PointToPointTest, SendsRoundTheRing) {
  world().run([&](World& world) {
    for (const std::size_t size : sizes) {
      auto out = buffer<std::int32_t>(world, size, world.rank() * 1000);
      auto in = buffer<std::int32_t>(world, size, -1);

      Request received = world.communicator().recv(std::span(in), previous(world));
      Request sent = world.communicator().send(std::span<const std::int32_t>(out), next(world));
      received.wait();
      sent.wait();

      EXPECT_EQ(in, buffer<std::int32_t>(world, size, previous(world) * 1000)) << size;
    }
  });
}

TEST_P(MessagesTest, MatchesInTheOrderPostedPerTag) {
  world().run([&](World& world) {
    Communicator& comm = world.communicator();
    constexpr int messages = 100;
    std::vector<std::int64_t> out(2 * messages);
    std::vector<std::int64_t> in(2 * messages, -1);
    std::iota(out.begin(), out.end(), 0);

    std::vector<Request> requests;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto one = std::span<const std::int64_t>(out).subspan(i, 1);
      requests.push_back(comm.send(one, next(world), static_cast<int>(i % 2)));
    }
    // The odd ones first, though they were sent in between.
    for (std::size_t i = 1; i < in.size(); i += 2) {
      comm.recv(std::span(in).subspan(i, 1), previous(world), 1).wait();
    }
    for (std::size_t i = 0; i < in.size(); i += 2) {
      comm.recv(std::span(in).subspan(i, 1), previous(world), 0).wait();
    }
    for (Request& request : requests) request.wait();

    EXPECT_EQ(in, out);
  });
}

// More than a pass looks at, and more records than are kept: those beyond are freed by the next
// post. Sanitizers do not tell how much memory is in use.
TEST_P(MessagesTest, ThousandsEndInAnyOrderAndLeaveNoMemoryBehind) {
  constexpr int messages = 3000;
  const auto bytes_in_use = [] { return mallinfo2().uordblks; };
  world().run([&](World& world) {
    Communicator& comm = world.communicator();
    std::vector<std::int32_t> out(messages);
    std::vector<std::int32_t> in(messages, -1);
    std::iota(out.begin(), out.end(), 0);
    {
      std::vector<Request> requests;
      for (std::int32_t& place : in) {
        const auto tag = static_cast<int>(&place - in.data());
        requests.push_back(comm.recv(std::span(&place, 1), previous(world), tag));
      }
      for (int tag = messages; tag-- > 0;) {
        requests.push_back(
            comm.send(std::span(out).subspan(static_cast<std::size_t>(tag), 1), next(world), tag));
      }
      for (std::size_t i = requests.size(); i-- > 0;) requests[i].wait();
      EXPECT_EQ(in, out);
      comm.barrier().wait();
    }
    const std::size_t before = bytes_in_use();
    comm.barrier().wait();
    if (ranks() == 1 && before > 0) {
      EXPECT_LT(bytes_in_use() + (std::size_t{10} << 20U), before);
    }
  });
}

// Memory that the message does not fill stays as it was, in rows that lie apart, too.
TEST_P(MessagesTest, AShorterMessageFillsABeginOfTheRows) {
  world().run([&](World& world) {
    const std::vector<int> out(3, 7);
    std::vector<int> in(12, -1);
    const std::vector<Neighbour> neighbours = {
        Neighbour(next(world), Strided<const int>(out.data(), 1, 3, 3), Strided<int>(), 1, 1),
        Neighbour(previous(world), Strided<const int>(), Strided<int>(in.data(), 3, 2, 4), 1, 1)};
    world.communicator().sendrecv(neighbours).wait();

    EXPECT_THAT(in, testing::ElementsAre(7, 7, -1, -1, 7, -1, -1, -1, -1, -1, -1, -1));
  });
}

TEST_P(MessagesTest, TellsHowMuchHasCome) {
  world().run([&](World& world) {
    std::vector<std::int32_t> out(5, 7);
    std::vector<std::int32_t> in(100'000);
    Request received = world.communicator().recv(std::span(in), previous(world));
    Request sent = world.communicator().send(std::span(out), next(world));
    received.wait();
    sent.wait();

    EXPECT_EQ(received.received_bytes(), 5 * sizeof(std::int32_t));
    EXPECT_EQ(sent.received_bytes(), 0U);
  });
}

TEST_P(MessagesTest, KeepsSignalsInOrderUntilTheyAreWaitedFor) {
  world().run([&](World& world) {
    Communicator& comm = world.communicator();
    constexpr std::uint64_t signals = 100;
    std::vector<Request> puts;
    for (std::uint64_t i = 0; i < signals; ++i) puts.push_back(comm.put_signal(next(world), i, 3));
    for (std::uint64_t i = 0; i < signals; ++i) {
      std::uint64_t value = 0;
      comm.wait_signal(previous(world), value, 3).wait();
      ASSERT_EQ(value, i);
    }
    wait_all(puts);
  });
}

TEST_P(MessagesTest, ASignalThatHasNotComeIsNotThere) {
  world().run([&](World& world) {
    Communicator& comm = world.communicator();
    std::uint64_t value = 7;
    Request signal = comm.wait_signal(previous(world), value);

    EXPECT_FALSE(signal.test());
    comm.barrier().wait();
    comm.put_signal(next(world), 42).wait();
    signal.wait();

    EXPECT_EQ(value, 42U);
  });
}

TEST_P(MessagesTest, ALongerMessageThanItsPlaceIsAnError) {
  if (ranks() == 1) return;
  world().run([&](World& world) {
    std::vector<std::int32_t> data(100'000, 1);
    if (world.rank() == 0) {
      Request sent = world.communicator().send(std::span<const std::int32_t>(data), 1);
      EXPECT_TRUE(sent.wait_for(std::chrono::seconds(20)));
    } else if (world.rank() == 1) {
      Request received = world.communicator().recv(std::span(data).first(10), 0);
      EXPECT_THROW(received.wait(), Error);
    }
  });
}

TEST_P(MessagesTest, ReportsALostPeerThroughTheRequest) {
  if (ranks() == 1) return;
  world().run_without(ranks() - 1, [&](World& world) {
    std::vector<std::int32_t> data(1);

    Request received = world.communicator().recv(std::span(data), ranks() - 1);

    EXPECT_THROW(received.wait(), Error);
    EXPECT_EQ(received.status(), Errc::peer_lost);
  });
}

TEST_P(MessagesTest, AReceiveThatIsGivenUpLeavesItsMessageToTheNext) {
  world().run([&](World& world) {
    Communicator& comm = world.communicator();
    std::vector<std::int32_t> mine(3, world.rank());
    std::vector<std::int32_t> unused(3, -1);
    std::vector<std::int32_t> theirs(3);

    Request given_up = comm.recv(std::span(unused), previous(world), 4);
    given_up.cancel();
    comm.barrier().wait();
    Request sent = comm.send(std::span<const std::int32_t>(mine), next(world), 4);
    comm.recv(std::span(theirs), previous(world), 4).wait();
    sent.wait();

    EXPECT_TRUE(given_up.test());
    EXPECT_TRUE(test::all_are(unused, -1));
    EXPECT_TRUE(test::all_are(theirs, previous(world)));
  });
}

TEST_P(MessagesTest, OnlyReceivesCanBeGivenUp) {
  world().run([&](World& world) {
    Request barrier = world.communicator().barrier();

    barrier.cancel();

    EXPECT_NO_THROW(barrier.wait());
    EXPECT_NO_THROW(world.communicator().barrier().wait());
  });
}

TEST(PointToPointFailureTest, TestingAloneNoticesALostPeer) {
  for (const Backend backend : {Backend::shm, Backend::shm_nodes}) {
    test::World(backend, 2).run_without(1, [](World& world) {
      std::uint64_t value = 0;

      Request signalled = world.communicator().wait_signal(1, value);

      EXPECT_THROW(while (!signalled.test()){}, Error);
      EXPECT_EQ(signalled.status(), Errc::peer_lost);
    });
  }
}

// Looks at several messages together every now and then, as an event loop does. Rank 1 is there,
// and sends nothing.
TEST(PointToPointFailureTest, TestingSeveralNoticesALostPeerOfAny) {
  for (const Backend backend : {Backend::shm, Backend::shm_nodes}) {
    std::latch noticed(1);
    test::World(backend, 3).run_without(2, [&](World& world) {
      if (world.rank() == 1) return noticed.wait();
      std::array<int, 2> values{};
      Communicator& comm = world.communicator();
      Request of_living = comm.recv(std::span(values).first(1), 1);
      Request of_lost = comm.recv(std::span(values).last(1), 2);

      const auto end = std::chrono::steady_clock::now() + 20s;
      bool lost = false;
      while (!lost && std::chrono::steady_clock::now() < end) {
        const auto next_look = std::chrono::steady_clock::now() + 3ms;
        while (std::chrono::steady_clock::now() < next_look) {
        }
        try {
          EXPECT_FALSE(of_living.test());
          EXPECT_FALSE(of_lost.test());
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), Errc::peer_lost);
          EXPECT_THAT(error.what(), testing::HasSubstr("rank 2"));
          lost = true;
        }
      }
      EXPECT_TRUE(lost);
      noticed.count_down();
    });
  }
}

// And not as the collective that is under way meanwhile.
TEST(PointToPointFailureTest, AMessageThatIsTooLongIsNamed) {
  test::World(Backend::shm_nodes, 2).run([](World& world) {
    Communicator& comm = world.communicator();
    std::vector<int> data(4);
    if (world.rank() == 1) return comm.send(std::span<const int>(data), 0).wait();
    Request reduced = comm.allreduce(std::span(data).first(2));
    Request received = comm.recv(std::span(data).last(1), 1);
    const auto error = test::error_of(std::move(received));
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(), testing::HasSubstr("was in recv"));
  });
}

TEST(PointToPointFailureTest, TestingAloneNoticesAnAbort) {
  for (const Backend backend : {Backend::shm, Backend::shm_nodes}) {
    test::World(backend, 2).run([](World& world) {
      std::uint64_t value = 0;
      if (world.rank() == 0) return world.abort("enough");

      Request signalled = world.communicator().wait_signal(0, value);

      EXPECT_THROW(while (!signalled.test()){}, Error);
      EXPECT_EQ(signalled.status(), Errc::aborted);
    });
  }
}

TEST(PointToPointArgumentsTest, AreChecked) {
  test::World(2).run([](World& world) {
    Communicator& comm = world.communicator();
    std::vector<float> data(4);
    std::uint64_t value = 0;

    EXPECT_THROW(static_cast<void>(comm.send(std::span<const float>(data), 2)),
                 std::invalid_argument);
    EXPECT_THROW(static_cast<void>(comm.recv(std::span(data), -1)), std::invalid_argument);
    EXPECT_THROW(static_cast<void>(comm.recv(std::span(data), 0, -1)), std::invalid_argument);
    EXPECT_THROW(static_cast<void>(comm.put_signal(0, 1, Communicator::max_tag)),
                 std::invalid_argument);
    EXPECT_THROW(static_cast<void>(comm.wait_signal(7, value)), std::invalid_argument);
    const std::vector<Neighbour> overlapping = {Neighbour(
        1, Strided<const float>(data.data(), 2, 2, 1), Strided<float>(data.data(), 2, 1, 2))};
    EXPECT_THROW(static_cast<void>(comm.sendrecv(overlapping)), std::invalid_argument);
    EXPECT_THROW(static_cast<void>(comm.share(std::span(data))), std::invalid_argument);
  });
}

TEST(ShareTest, ShowsEveryRankTheOthersMemory) {
  test::World(3).run([](World& world) {
    Communicator& comm = world.communicator();
    std::pmr::vector<int> mine(static_cast<std::size_t>(5 + world.rank()), world.rank(),
                               &world.arena());

    const auto all = comm.share(std::span(mine));
    EXPECT_EQ(all[0].size(), 5U);
    EXPECT_EQ(all[1].size(), 6U);
    if (world.rank() == 0) {
      all[2][3] = 77;
      comm.put_signal(2, 0).wait();
    }
    if (world.rank() == 2) {
      std::uint64_t value = 0;
      comm.wait_signal(0, value).wait();
      EXPECT_EQ(mine[3], 77);
    }
    comm.barrier().wait();
  });
}

TEST(ShareTest, ArraysMayBeEmpty) {
  test::World(2).run([](World& world) {
    std::pmr::vector<int> mine(world.rank() == 0 ? 10 : 0, 7, &world.arena());

    const auto all = world.communicator().share(std::span(mine));

    EXPECT_EQ(all[0].size(), 10U);
    EXPECT_TRUE(all[1].empty());
    world.communicator().barrier().wait();
  });
}

template <typename Param>
std::string links_and_ranks(const Param& param) {
  return test::name_of(std::get<0>(param)) + std::to_string(std::get<1>(param)) + "ranks";
}

const auto backends = Values(Backend::shm, Backend::shm_nodes, Backend::hierarchy);
const auto numbers_of_ranks = Values(1, 2, 3, 5);

INSTANTIATE_TEST_SUITE_P(Links, PointToPointTest,
                         Combine(backends, numbers_of_ranks,
                                 Values(Memory::arena, Memory::ordinary)),
                         [](const auto& of) {
                           return links_and_ranks(of.param) + test::name_of(std::get<2>(of.param));
                         });
INSTANTIATE_TEST_SUITE_P(Links, MessagesTest, Combine(backends, numbers_of_ranks),
                         [](const auto& of) { return links_and_ranks(of.param); });

}  // namespace
}  // namespace rondo::transport::point_to_point_test

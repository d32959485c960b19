// Waiting for several operations: for all of them, and for whichever ends first.

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>
#include <rondo/transport/request.hpp>
#include <rondo/transport/world.hpp>

#include "support/expect_error.hpp"
#include "support/world.hpp"

namespace rondo::transport::wait_any_test {
namespace {

using namespace std::chrono_literals;
using test::Backend;

class WaitAnyTest : public testing::TestWithParam<Backend> {
 protected:
  test::World world(int ranks, WorldOptions options = test::quick_options()) const {
    return {GetParam(), ranks, std::move(options)};
  }
};

// Two receives of rank 0, from ranks 1 and 2.
struct Receives {
  explicit Receives(Communicator& comm)
      : requests{comm.recv(std::span(values).first(1), 1),
                 comm.recv(std::span(values).last(1), 2)} {}

  std::array<int, 2> values{};
  std::array<Request, 2> requests;
};

void send_value(Communicator& comm, int to, int value) {
  comm.send(std::span<const int>(&value, 1), to).wait();
}

int receive_value(Communicator& comm, int from) {
  int value = 0;
  comm.recv(std::span(&value, 1), from).wait();
  return value;
}

// Rank 1 sends only when rank 0 has seen what rank 2 sent.
TEST_P(WaitAnyTest, GivesEachThatEndsAndThenNothing) {
  world(3).run([](Communicator& comm) {
    if (comm.rank() == 2) return send_value(comm, 0, 22);
    if (comm.rank() == 1) {
      receive_value(comm, 0);
      return send_value(comm, 0, 11);
    }
    Receives receives(comm);

    EXPECT_EQ(wait_any(receives.requests), 1U);
    EXPECT_TRUE(receives.requests[1].empty());
    EXPECT_EQ(receives.values[1], 22);
    EXPECT_EQ(wait_any_for(receives.requests, 1ms), std::nullopt);
    EXPECT_FALSE(receives.requests[0].empty());
    send_value(comm, 1, 0);
    EXPECT_EQ(wait_any(receives.requests), 0U);
    EXPECT_EQ(receives.values[0], 11);
    EXPECT_EQ(wait_any(receives.requests), std::nullopt);
    EXPECT_EQ(wait_any({}), std::nullopt);
  });
}

TEST_P(WaitAnyTest, TakesOperationsOfSeveralCommunicators) {
  world(4).run([](Communicator& comm) {
    Communicator pair = comm.split(comm.rank() / 2);
    Communicator all = comm.dup();
    std::vector<int> data(5000, 1);
    std::vector<Request> requests;
    requests.push_back(pair.barrier());
    requests.push_back(all.allreduce(std::span(data)));

    const auto first = wait_any(requests);
    const auto second = wait_any(requests);

    ASSERT_TRUE(first && second);
    EXPECT_NE(*first, *second);
    EXPECT_TRUE(test::all_are(data, 4));
  });
}

TEST(WaitAnyLifetimeTest, TheWorldMayHaveEnded) {
  std::vector<int> data(10, 1);
  std::vector<Request> requests(2);
  {
    WorldOptions options;
    options.threads = Threads::multiple;
    World world = std::move(World::make_threads(1, options).front());
    requests[1] = world.communicator().allreduce(std::span(data));
  }
  EXPECT_EQ(wait_any(requests), 1U);
}

TEST_P(WaitAnyTest, WaitsForAllOfThem) {
  world(2).run([](Communicator& comm) {
    std::vector<std::vector<int>> data(20, std::vector<int>(1000, 1));
    std::vector<Request> requests(1);  // one is empty
    for (auto& one : data) requests.push_back(comm.allreduce(std::span(one)));

    wait_all(requests);

    for (const auto& one : data) EXPECT_TRUE(test::all_are(one, 2));
    EXPECT_TRUE(wait_all_for(requests, 0ns));
  });
}

TEST_P(WaitAnyTest, WaitsForAllForALimitedTime) {
  world(2).run([](Communicator& comm) {
    if (comm.rank() == 1) {
      receive_value(comm, 0);
      return comm.barrier().wait();
    }
    std::vector<Request> requests;
    requests.push_back(comm.barrier());

    EXPECT_FALSE(wait_all_for(requests, 1ms));
    EXPECT_TRUE(requests[0].status() == std::error_code());
    send_value(comm, 1, 0);

    EXPECT_TRUE(wait_all_for(requests, 60s));
  });
}

// The end of the longest limit is later than a clock can tell. The sanitizers notice a sum of both.
TEST_P(WaitAnyTest, WaitsForAllHoweverLongTheLimit) {
  world(2).run([](Communicator& comm) {
    if (comm.rank() == 1) {
      receive_value(comm, 0);
      return send_value(comm, 0, 5);
    }
    int value = 0;
    const int asked = 1;
    std::vector<Request> requests;
    requests.push_back(comm.recv(std::span(&value, 1), 1));
    requests.push_back(comm.send(std::span(&asked, 1), 1));

    EXPECT_TRUE(wait_all_for(requests, std::chrono::nanoseconds::max()));

    EXPECT_EQ(value, 5);
  });
}

// The rank that is gone is not that of the first request.
TEST_P(WaitAnyTest, NoticesALostPeerOfAnyOfThem) {
  world(3).run_without(2, [](Communicator& comm) {
    // Rank 1 stays until rank 0 has seen the failure: it fails with the communicator.
    if (comm.rank() == 1) {
      EXPECT_THROW(receive_value(comm, 0), Error);
      return;
    }
    Receives receives(comm);

    test::expect_error(Errc::peer_lost, [&] { static_cast<void>(wait_any(receives.requests)); }, 2);
  });
}

TEST_P(WaitAnyTest, EndsAtTheDeadline) {
  WorldOptions options = test::quick_options();
  options.deadline = 1s;
  world(3, options).run([](World& world) {
    Communicator other = world.communicator().dup();
    if (world.rank() == 0) {
      Receives receives(other);
      test::expect_error(Errc::deadline_exceeded,
                         [&] { static_cast<void>(wait_any(receives.requests)); });
    }
    // The others wait longer than the deadline for rank 0, as any number of them may need.
    Request last = world.communicator().barrier();
    while (!last.wait_for(10s)) {
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Backends, WaitAnyTest,
                         testing::Values(Backend::shm, Backend::shm_nodes, Backend::hierarchy,
                                         Backend::tcp),
                         [](const auto& backend) { return test::name_of(backend.param); });

}  // namespace
}  // namespace rondo::transport::wait_any_test

// Ranks of a node connect over abstract sockets, whatever other users and processes do.

#include "bootstrap/node_connector.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bootstrap/sockets.hpp"
#include "support/other_user.hpp"
#include "support/store.hpp"

namespace rondo::transport::stores::node_connector_test {
namespace {

using namespace std::chrono_literals;
using bootstrap::accept_from;
using bootstrap::connect_to;
using bootstrap::listen_as;
using rondo::test::OtherUser;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

bootstrap::Clock::time_point soon() { return bootstrap::Clock::now() + 60s; }

// Each test has a job of its own.
class NodeConnectorTest : public testing::Test {
 protected:
  NodeConnectorTest() {
    static int jobs = 0;
    std::array<char, 33> text{};
    std::snprintf(text.data(), text.size(), "%016x%016x", static_cast<unsigned>(::getpid()),
                  static_cast<unsigned>(++jobs));
    job_ = text.data();
  }

  [[nodiscard]] bootstrap::NodePeers connect(int rank, int size, const WorldOptions& options = {}) {
    std::vector<int> members;
    for (int r = 0; r < size; ++r) members.push_back(r);
    return bootstrap::connect_node({.job = job_, .rank = rank, .size = size}, members, options);
  }

  std::string job_;
};

TEST_F(NodeConnectorTest, DropsConnectionsThatSendGarbage) {
  on_threads(2, [&](int rank) {
    if (rank == 1) {
      for (int i = 0; i < 5; ++i) {
        const auto other = connect_to(job_, 0, soon());
        ASSERT_EQ(::send(other.get(), "garbage", 7, MSG_NOSIGNAL), 7);
      }
    }
    EXPECT_EQ(connect(rank, 2).cpus.size(), 2U);
  });
}

// Rank 1 has left the job's last World, and comes for the next; rank 0 has not yet left the
// bootstrap of that one.
TEST_F(NodeConnectorTest, RetriesWithARankThatIsStillInAnEarlierBootstrap) {
  on_threads(2, [&](int rank) {
    if (rank == 0) {
      const auto earlier = listen_as(job_, 0);
      const auto early = accept_from(earlier, soon());
      ASSERT_TRUE(bootstrap::receive_card(early.get(), soon()));
    }
    EXPECT_EQ(connect(rank, 2).cpus.size(), 2U);
  });
}

std::size_t count_open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& one : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

// Its own memory, process and recorder are four descriptors; those of a peer only two, because what
// is mapped needs none.
TEST_F(NodeConnectorTest, KeepsTwoDescriptorsForEachPeer) {
  constexpr std::size_t ranks = 5;
  const std::size_t before = count_open_descriptors();
  std::vector<bootstrap::NodePeers> nodes(ranks);
  on_threads(ranks, [&](int rank) {
    nodes[static_cast<std::size_t>(rank)] = connect(rank, static_cast<int>(ranks));
  });

  EXPECT_EQ(count_open_descriptors() - before, ranks * (4 + (ranks - 1) * 2));
}

// If 65,536 ranks of a World shared the addresses, each would have 1 GiB on most machines.
TEST_F(NodeConnectorTest, ReservesAddressesForTheRanksOfTheNodeAlone) {
  constexpr int size = 65'536;
  on_threads(2, [&](int rank) {
    const auto node =
        bootstrap::connect_node({.job = job_, .rank = rank, .size = size}, {0, 1}, {});
    for (std::size_t peer = 0; peer < 2; ++peer) {
      EXPECT_EQ(node.peers[peer].memory->arena().reserved(), shm::Reserve::of(2).arena_bytes);
    }
  });
  EXPECT_GT(shm::Reserve::of(2).arena_bytes, shm::Reserve::of(size).arena_bytes);
}

// The backend of torch.distributed makes a World for each group.
TEST(ReserveTest, LeavesAddressesForManyWorldsOfAProcess) {
  constexpr std::size_t worlds = 30;
  constexpr std::size_t addresses = std::size_t{1} << 47U;
  for (const std::size_t gibibytes : {8U, 64U, 256U, 512U}) {
    for (int ranks = 1; ranks <= 512; ranks *= 2) {
      const std::size_t memory = gibibytes << 30U;
      const auto [control, arena] = shm::Reserve::of(ranks, memory);
      const auto count = static_cast<std::size_t>(ranks);
      EXPECT_LT(worlds * count * (control + arena), addresses) << gibibytes << ", " << ranks;
      EXPECT_GE(arena, std::min(memory, 4 * memory / count)) << gibibytes << ", " << ranks;
    }
  }
}

TEST_F(NodeConnectorTest, RefusesRanksThatWaitInDifferentWays) {
  on_threads(2, [&](int rank) {
    WorldOptions options;
    options.waiting = rank == 0 ? Waiting::spin : Waiting::block;

    EXPECT_THAT(error_of([&] { (void)connect(rank, 2, options); }),
                AllOf(HasSubstr("waiting is"), HasSubstr("spin"), HasSubstr("block")));
  });
}

// Anybody who knows the job can work out the names of all its ranks.
TEST_F(NodeConnectorTest, UsesNamesThatDoNotTellTheJobToOtherUsers) {
  const auto listener = listen_as(job_, 0);

  std::ostringstream names;
  names << std::ifstream("/proc/net/unix").rdbuf();

  EXPECT_THAT(names.str(), HasSubstr("@rondo-"));
  EXPECT_THAT(names.str(), Not(HasSubstr(job_)));
}

// A process of another user that knows the job's id, and has taken a name of rank 0.
class NameTaker {
 public:
  explicit NameTaker(const std::string& job) : process_([&] { return take_name(job, ready_[1]); }) {
    char byte = 0;
    EXPECT_EQ(::read(ready_[0], &byte, 1), 1);
  }

  /// It has seen a connection end, and nothing come over it.
  [[nodiscard]] bool received_nothing() { return process_.wait() == 0; }

 private:
  static int take_name(const std::string& job, int ready) {
    const auto listener = listen_as(job, 0);
    (void)!::write(ready, "x", 1);
    const auto client = accept_from(listener, soon());
    if (!bootstrap::wait_until_ready(client.get(), POLLIN, soon())) return 1;
    char byte = 0;
    return ::recv(client.get(), &byte, 1, 0) == 0 ? 0 : 2;
  }
  static std::array<int, 2> make_pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe(ends.data()), 0);
    return ends;
  }

  std::array<int, 2> ready_ = make_pipe();
  OtherUser process_;
};

TEST_F(NodeConnectorTest, SendsNothingToAnotherUserWhoHasTakenANameAndConnectsAllTheSame) {
  if (!OtherUser::possible()) GTEST_SKIP() << "only root can be another user, too";
  NameTaker taker(job_);

  on_threads(2, [&](int rank) { EXPECT_EQ(connect(rank, 2).cpus.size(), 2U); });

  EXPECT_TRUE(taker.received_nothing());
}

// As the store tells when rank 1 has ended.
TEST_F(NodeConnectorTest, EndsWithoutWaitingForTheDeadlineWhenTheJobHasFailed) {
  WorldOptions options;
  options.bootstrap_deadline = 24h;
  for (const int rank : {0, 2}) {
    EXPECT_THAT(error_of([&] {
                  (void)bootstrap::connect_node({.job = job_, .rank = rank, .size = 3}, {0, 1, 2},
                                                options, [] { return "lost rank 1"; });
                }),
                HasSubstr("lost rank 1"));
  }
}

// Rank 3 never starts, and the others are not to be blamed.
TEST_F(NodeConnectorTest, NamesThoseAloneThatDoNotAnswer) {
  WorldOptions options;
  options.bootstrap_deadline = 500ms;
  on_threads(3, [&](int rank) {
    EXPECT_THAT(error_of([&] { (void)connect(rank, 4, options); }),
                HasSubstr("could not connect to rank 3 in time"));
  });
}

TEST_F(NodeConnectorTest, NamesTheUserWhoHasTakenANameOfARankThatDoesNotCome) {
  if (!OtherUser::possible()) GTEST_SKIP() << "only root can be another user, too";
  const NameTaker taker(job_);
  WorldOptions options;
  options.bootstrap_deadline = 100ms;

  EXPECT_THAT(error_of([&] { (void)connect(1, 2, options); }),
              HasSubstr("user 65534 has taken names of rank 0"));
}

}  // namespace
}  // namespace rondo::transport::stores::node_connector_test

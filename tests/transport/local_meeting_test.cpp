// Ranks of a node that meet over abstract sockets, and who may get in their way.

#include "rendezvous/local_meeting.hpp"

#include <unistd.h>

#include <array>
#include <chrono>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "rendezvous/hello.hpp"
#include "rendezvous/local_socket.hpp"
#include "support/store.hpp"

namespace rondo::transport::test::local_meeting_test {
namespace {

using namespace std::chrono_literals;
using rendezvous::accept_from;
using rendezvous::listen_as;

rendezvous::Clock::time_point soon() { return rendezvous::Clock::now() + 60s; }

// Of a job of its own for each test.
class LocalMeetingTest : public testing::Test {
 protected:
  LocalMeetingTest() {
    static int jobs = 0;
    std::array<char, 33> text{};
    std::snprintf(text.data(), text.size(), "%016x%016x", static_cast<unsigned>(::getpid()),
                  static_cast<unsigned>(++jobs));
    job_ = text.data();
  }

  [[nodiscard]] rendezvous::Meeting meet(int rank, int size, const WorldOptions& options = {}) {
    std::vector<int> members;
    for (int r = 0; r < size; ++r) members.push_back(r);
    return rendezvous::meet({.job = job_, .rank = rank, .size = size}, members, options);
  }

  std::string job_;
};

// Rank 1 has left the job's last World, and comes for the next; rank 0 has not yet left that
// meeting.
TEST_F(LocalMeetingTest, ComesAgainToARankThatIsStillInAnEarlierMeeting) {
  on_threads(2, [&](int rank) {
    if (rank == 0) {
      const auto earlier = listen_as(job_, 0);
      const auto early = accept_from(earlier, soon());
      ASSERT_TRUE(rendezvous::receive_hello(early.get(), soon()));
    }
    EXPECT_EQ(meet(rank, 2).cpus.size(), 2U);
  });
}

}  // namespace
}  // namespace rondo::transport::test::local_meeting_test

// Ranks of a node that meet over abstract sockets, and who may get in their way.

#include "bootstrap/local_meeting.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bootstrap/hello.hpp"
#include "bootstrap/local_socket.hpp"
#include "bootstrap/sockets.hpp"
#include "support/other_user.hpp"
#include "support/store.hpp"

namespace rondo::transport::test::local_meeting_test {
namespace {

using namespace std::chrono_literals;
using rendezvous::accept_from;
using rendezvous::connect_to;
using rendezvous::listen_as;
using rondo::test::OtherUser;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

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

TEST_F(LocalMeetingTest, DropsStrangersThatSendGarbage) {
  on_threads(2, [&](int rank) {
    if (rank == 1) {
      for (int i = 0; i < 5; ++i) {
        const auto stranger = connect_to(job_, 0, soon());
        ASSERT_EQ(::send(stranger.get(), "garbage", 7, MSG_NOSIGNAL), 7);
      }
    }
    EXPECT_EQ(meet(rank, 2).cpus.size(), 2U);
  });
}

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

TEST_F(LocalMeetingTest, ComplainsWhenRanksWaitInDifferentWays) {
  on_threads(2, [&](int rank) {
    WorldOptions options;
    options.waiting = rank == 0 ? Waiting::spin : Waiting::block;

    EXPECT_THAT(complaint_of([&] { (void)meet(rank, 2, options); }),
                AllOf(HasSubstr("waiting is"), HasSubstr("spin"), HasSubstr("block")));
  });
}

// Who knows the job can work out the names of all its ranks.
TEST_F(LocalMeetingTest, UsesNamesThatDoNotTellTheJobToOtherUsers) {
  const auto listener = listen_as(job_, 0);

  std::ostringstream names;
  names << std::ifstream("/proc/net/unix").rdbuf();

  EXPECT_THAT(names.str(), HasSubstr("@rondo-"));
  EXPECT_THAT(names.str(), Not(HasSubstr(job_)));
}

// A process of another user that knows the job's id, and has taken a name of rank 0.
class Thief {
 public:
  explicit Thief(const std::string& job) : process_([&] { return steal(job, ready_[1]); }) {
    char byte = 0;
    EXPECT_EQ(::read(ready_[0], &byte, 1), 1);
  }

  /// It has seen a connection end, and nothing come over it.
  [[nodiscard]] bool has_learnt_nothing() { return process_.wait() == 0; }

 private:
  static int steal(const std::string& job, int ready) {
    const auto listener = listen_as(job, 0);
    (void)!::write(ready, "x", 1);
    const auto victim = accept_from(listener, soon());
    if (!rendezvous::wait_until_ready(victim.get(), POLLIN, soon())) return 1;
    char byte = 0;
    return ::recv(victim.get(), &byte, 1, 0) == 0 ? 0 : 2;
  }
  static std::array<int, 2> make_pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe(ends.data()), 0);
    return ends;
  }

  std::array<int, 2> ready_ = make_pipe();
  OtherUser process_;
};

TEST_F(LocalMeetingTest, SendsNothingToAnotherUserWhoHasTakenANameAndMeetsAllTheSame) {
  if (!OtherUser::possible()) GTEST_SKIP() << "only root can be another user, too";
  Thief thief(job_);

  on_threads(2, [&](int rank) { EXPECT_EQ(meet(rank, 2).cpus.size(), 2U); });

  EXPECT_TRUE(thief.has_learnt_nothing());
}

TEST_F(LocalMeetingTest, NamesTheUserWhoHasTakenANameOfARankThatDoesNotCome) {
  if (!OtherUser::possible()) GTEST_SKIP() << "only root can be another user, too";
  const Thief thief(job_);
  WorldOptions options;
  options.rendezvous_deadline = 100ms;

  EXPECT_THAT(complaint_of([&] { (void)meet(1, 2, options); }),
              HasSubstr("user 65534 has taken names of rank 0"));
}

}  // namespace
}  // namespace rondo::transport::test::local_meeting_test

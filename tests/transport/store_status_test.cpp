// The messages of ranks to each other through the TCP store, and how a lost rank is reported.

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/store.hpp"
#include "verdict/wait_graph.hpp"

namespace rondo::transport::stores::store_status_test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::Field;
using testing::HasSubstr;
using testing::SizeIs;

auto is_message(StatusMessage::Kind kind, int rank, const std::string& text) {
  return AllOf(Field(&StatusMessage::kind, kind), Field(&StatusMessage::rank, rank),
               Field(&StatusMessage::text, HasSubstr(text)));
}

TEST(StoreStatusTest, PassesAMessageToAllOtherRanks) {
  StatusLog zero;
  StatusLog two;
  StoreJob job(3);
  job.join_all();
  zero.watch(*job.channel(0));
  two.watch(*job.channel(2));

  job.channel(1)->tell(
      {.kind = StatusMessage::Kind::diverged, .rank = 1, .context = 7, .text = "why"});

  for (StatusLog* log : {&zero, &two}) {
    const auto messages = log->wait_for(1);
    EXPECT_THAT(messages.front(), is_message(StatusMessage::Kind::diverged, 1, "why"));
    EXPECT_EQ(messages.front().context, 7U);
  }
}

TEST(StoreStatusTest, AHandlerThatThrowsMakesItsRankLostAndDoesNotEndTheProcess) {
  StatusLog zero;
  StoreJob job(3);
  job.join_all();
  zero.watch(*job.channel(0));
  job.channel(1)->watch([](const StatusMessage&) { throw std::bad_alloc(); });

  job.channel(2)->tell({.kind = StatusMessage::Kind::diverged, .rank = 2});

  EXPECT_THAT(zero.wait_for(2),
              Contains(is_message(StatusMessage::Kind::lost, 1, "rank 1 on host host1")));
  EXPECT_THAT(error_of([&] { (void)job.channel(1)->allgather("mine"); }),
              HasSubstr("this rank's connection to it has failed: std::bad_alloc"));
}

TEST(StoreStatusTest, PassesOnWhatRankZeroTellsAndNotBackToIt) {
  StatusLog zero;
  StatusLog one;
  StoreJob job(2);
  job.join_all();
  zero.watch(*job.channel(0));
  one.watch(*job.channel(1));

  job.channel(0)->tell({.kind = StatusMessage::Kind::aborted, .rank = 0, .text = "enough"});
  EXPECT_THAT(one.wait_for(1).front(), is_message(StatusMessage::Kind::aborted, 0, "enough"));
  job.channel(1)->tell({.kind = StatusMessage::Kind::diverged, .rank = 1});

  // The first that it receives is not its own.
  EXPECT_EQ(zero.wait_for(1).front().rank, 1);
}

// Ranks 3 and 1 wait for 1 and for 2; it is nothing to the others.
TEST(StoreStatusTest, AnswersWhoIsAtFaultToTheRankThatAsks) {
  StatusLog zero;
  StatusLog three;
  StoreJob job(4);
  job.join_all();
  zero.watch(*job.channel(0));
  three.watch(*job.channel(3));
  const auto say = [&](int rank, StatusMessage::Kind kind, std::vector<int> ranks) {
    job.channel(rank)->tell({.kind = kind, .rank = rank, .text = encode_ranks(ranks)});
  };

  say(1, StatusMessage::Kind::waits, {2});
  // The store has read what rank 1 told before it tells of the next message.
  job.channel(1)->tell({.kind = StatusMessage::Kind::diverged, .rank = 1});
  EXPECT_EQ(three.wait_for(1).front().kind, StatusMessage::Kind::diverged);
  say(3, StatusMessage::Kind::asks, {1});
  EXPECT_THAT(three.wait_for(2).back(), is_message(StatusMessage::Kind::at_fault, 2, ""));

  say(1, StatusMessage::Kind::waits, {});
  job.channel(1)->tell({.kind = StatusMessage::Kind::diverged, .rank = 1});
  EXPECT_EQ(three.wait_for(3).back().kind, StatusMessage::Kind::diverged);
  say(3, StatusMessage::Kind::asks, {1});
  EXPECT_THAT(three.wait_for(4).back(), is_message(StatusMessage::Kind::at_fault, 1, ""));
  EXPECT_THAT(zero.wait_for(2), Each(Field(&StatusMessage::kind, StatusMessage::Kind::diverged)));
}

TEST(StoreStatusTest, KeepsMessagesUntilSomebodyWatches) {
  StatusLog one;
  StatusLog zero;
  StoreJob job(2);
  job.join_all();
  one.watch(*job.channel(1));
  job.channel(1)->tell({.kind = StatusMessage::Kind::diverged, .rank = 1, .text = "early"});
  // The answer to what it told later has come, so the early one has, too.
  on_threads(2, [&](int rank) { (void)job.channel(rank)->allgather(""); });

  zero.watch(*job.channel(0));

  EXPECT_THAT(zero.wait_for(1).front(), is_message(StatusMessage::Kind::diverged, 1, "early"));
}

TEST(StoreStatusTest, LetsHandlersTell) {
  StatusLog zero;
  StoreJob job(2);
  job.join_all();
  zero.watch(*job.channel(0));
  SideChannel& answerer = *job.channel(1);
  answerer.watch([&](const StatusMessage& message) {
    answerer.tell(
        {.kind = StatusMessage::Kind::diverged, .rank = 1, .text = "re: " + message.text});
  });

  job.channel(0)->tell({.kind = StatusMessage::Kind::diverged, .rank = 0, .text = "hello"});

  EXPECT_EQ(zero.wait_for(1).front().text, "re: hello");
}

TEST(StoreStatusTest, TellsOnceThatARankHasLeft) {
  StatusLog zero;
  StoreJob job(3);
  job.join_all();
  zero.watch(*job.channel(0));

  job.channel(1)->tell({.kind = StatusMessage::Kind::left, .rank = 1});
  job.channel(1).reset();
  job.channel(2).reset();

  const auto messages = zero.wait_for(2);
  EXPECT_THAT(messages[0], is_message(StatusMessage::Kind::left, 1, ""));
  EXPECT_THAT(messages[1], is_message(StatusMessage::Kind::left, 2, ""));
}

TEST(StoreStatusTest, ReportsNoLossOfAStoreThatLeftInOrder) {
  StatusLog one;
  StoreJob job(2);
  job.join_all();
  one.watch(*job.channel(1));

  job.channel(0).reset();

  EXPECT_THAT(one.wait_for(1).front(), is_message(StatusMessage::Kind::left, 0, ""));
  job.channel(1).reset();
  EXPECT_THAT(one.wait_for(1), SizeIs(1));
}

TEST(StoreStatusTest, EndsAnAllgatherWhenARankLeaves) {
  StoreJob job(2);
  job.join_all();
  std::jthread leaver([&] { job.channel(1).reset(); });

  EXPECT_THAT(error_of([&] { (void)job.channel(0)->allgather(""); }), HasSubstr("rank 1 has left"));
}

// A rank that is a process of its own, to be killed and stopped. It never returns. Made before
// the job, which starts threads.
class ChildRank {
 public:
  ChildRank(const shm::Descriptor& listener, int rank, int size) : pid_(::fork()) {
    if (pid_ != 0) return;
    try {
      const auto channel =
          StoreClient::join(credentials(rank, size), StoreJob::endpoint_of(listener));
      (void)channel->allgather("");
      ::pause();
    } catch (...) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  ChildRank(const ChildRank&) = delete;
  ChildRank& operator=(const ChildRank&) = delete;
  ~ChildRank() {
    signal(SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  void signal(int number) const { ::kill(pid_, number); }

 private:
  pid_t pid_;
};

TEST(StoreStatusTest, TellsAllWhoWasKilled) {
  StatusLog zero;
  StatusLog one;
  auto listener = StoreJob::listen();
  const ChildRank child(listener, 2, 3);
  StoreJob job(3, std::move(listener));
  job.join(1);
  on_threads(2, [&](int rank) { (void)job.channel(rank)->allgather(""); });
  zero.watch(*job.channel(0));
  one.watch(*job.channel(1));

  child.signal(SIGKILL);

  EXPECT_THAT(zero.wait_for(1).front(),
              is_message(StatusMessage::Kind::lost, 2, "rank 2 on host host2"));
  EXPECT_THAT(one.wait_for(1).front(),
              is_message(StatusMessage::Kind::lost, 2, "rank 2 on host host2"));
}

TEST(StoreStatusTest, DoesNotReportAStoppedRankAsLost) {
  StatusLog zero;
  auto listener = StoreJob::listen();
  const ChildRank child(listener, 2, 3);
  StoreJob job(3, std::move(listener));
  job.join(1);
  on_threads(2, [&](int rank) { (void)job.channel(rank)->allgather(""); });
  zero.watch(*job.channel(0));

  child.signal(SIGSTOP);
  for (int i = 0; i < 50; ++i) {
    job.channel(0)->tell(
        {.kind = StatusMessage::Kind::diverged, .rank = 0, .text = "are you there?"});
  }
  job.channel(1)->tell({.kind = StatusMessage::Kind::diverged, .rank = 1, .text = "I am"});

  // Rank 1's message came in after everything that rank 2 may have caused.
  EXPECT_THAT(zero.wait_for(1).front(), is_message(StatusMessage::Kind::diverged, 1, "I am"));
  child.signal(SIGCONT);
}

TEST(StoreStatusTest, EndsAnAllgatherWhenARankIsKilled) {
  auto listener = StoreJob::listen();
  const ChildRank child(listener, 2, 3);
  StoreJob job(3, std::move(listener));
  job.join(1);
  on_threads(2, [&](int rank) { (void)job.channel(rank)->allgather(""); });

  child.signal(SIGKILL);

  on_threads(2, [&](int rank) {
    EXPECT_THAT(error_of([&] { (void)job.channel(rank)->allgather(""); }),
                HasSubstr("lost rank 2 on host host2"));
  });
}

// The store's process, which is killed once its only client is there.
TEST(StoreStatusTest, ReportsRankZeroAsLostWhenItsProcessEnds) {
  StatusLog log;
  auto listener = bootstrap::listen_at({.host = "127.0.0.1", .port = 0});
  const auto port = bootstrap::own_address(listener.get()).port();
  const pid_t store = ::fork();
  if (store == 0) {
    const auto channel = StoreClient::serve(credentials(0, 2), std::move(listener));
    ::pause();
    ::_exit(0);
  }
  listener = {};
  const auto channel = StoreClient::join(credentials(1, 2), {.host = "127.0.0.1", .port = port});
  log.watch(*channel);

  ::kill(store, SIGKILL);

  EXPECT_THAT(log.wait_for(1).front(),
              is_message(StatusMessage::Kind::lost, 0, "rank 0 on host host0"));
  ::waitpid(store, nullptr, 0);
  EXPECT_THAT(error_of([&] { (void)channel->allgather(""); }), HasSubstr("lost rank 0"));
}

}  // namespace
}  // namespace rondo::transport::stores::store_status_test

// The services of the TCP store for the ranks of a job: allgather, and who may join.

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bootstrap/bootstrap.hpp"
#include "support/store.hpp"

namespace rondo::transport::stores::store_test {
namespace {

using namespace std::chrono_literals;
using bootstrap::join_store;
using bootstrap::JoinedStore;
using bootstrap::LaunchInfo;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string error_of_allgather(SideChannel& channel) {
  return error_of([&] { (void)channel.allgather("mine"); });
}

TEST(StoreTest, CarriesBlobsOfAnySizeAndAnyBytes) {
  StoreJob job(3);
  const std::vector<std::string> blobs{"", std::string(1, '\0'), std::string(1 << 20, '\xff')};

  on_threads(3, [&](int rank) {
    if (rank != 0) job.join(rank);

    EXPECT_EQ(job.channel(rank)->allgather(blobs[static_cast<std::size_t>(rank)]), blobs);
  });
}

// The memory of this process, in bytes.
std::size_t resident_bytes() {
  std::ifstream sizes("/proc/self/statm");
  std::size_t all = 0;
  std::size_t resident = 0;
  sizes >> all >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// 64 copies of the 16 MiB would be 1 GiB. Rank 0 is sent its copy before the others are sent
// anything, so another round shows that theirs is kept.
TEST(StoreTest, KeepsOneCopyOfWhatItSendsToMembersThatDoNotRead) {
  constexpr int ranks = 65;
  const std::string part(std::size_t{16} << 20U >> 6U, 'x');
  StoreJob job(ranks);
  // Members that read nothing until the end.
  std::list<StepwiseRank> silent;
  for (int rank = 1; rank < ranks; ++rank) {
    StepwiseRank& member = silent.emplace_back(job.endpoint(), bootstrap::largest_from_store);
    member.answer(job.credentials_of(rank));
    EXPECT_EQ(member.next()->type, bootstrap::Frame::Type::welcome);
  }

  const std::size_t before = resident_bytes();
  for (StepwiseRank& member : silent) {
    member.connection().send(encode(bootstrap::Blob{.bytes = part}));
    while (!member.connection().all_sent()) member.connection().exchange();
  }
  EXPECT_EQ(job.channel(0)->allgather(part), std::vector<std::string>(ranks, part));
  for (StepwiseRank& member : silent) {
    member.connection().send(encode(bootstrap::Blob{.round = 1}));
  }
  EXPECT_EQ(job.channel(0)->allgather(""), std::vector<std::string>(ranks));
  EXPECT_LT(resident_bytes(), before + (std::size_t{512} << 20U));
}

TEST(StoreTest, RefusesABlobThatIsTooLarge) {
  StoreJob job(1);

  EXPECT_THROW((void)job.channel(0)->allgather(std::string((1 << 20) + 1, 'x')),
               std::invalid_argument);
}

TEST(StoreTest, TellsEveryoneWhoDidNotCome) {
  StoreJob job(4, 2s);
  job.join(1);
  job.join(2);

  on_threads(3, [&](int rank) {
    EXPECT_THAT(error_of_allgather(*job.channel(rank)),
                HasSubstr("rank 3 of 4 did not come in time"));
  });
}

TEST(StoreTest, TellsWhatItCouldNotReach) {
  auto other = credentials(3, 4);
  other.bootstrap_deadline = 50ms;
  // The port is taken, but nobody listens.
  const auto listener = bootstrap::listen_at({.host = "127.0.0.1", .port = 0});
  const auto port = bootstrap::own_address(listener.get()).port();
  ::shutdown(listener.get(), SHUT_RDWR);

  const std::string error =
      error_of([&] { (void)StoreClient::join(other, {.host = "127.0.0.1", .port = port}); });

  EXPECT_THAT(error, AllOf(HasSubstr("rank 3 of 4 on host host3"),
                           HasSubstr("127.0.0.1:" + std::to_string(port)), HasSubstr("refused")));
}

TEST(StoreTest, WaitsForAStoreThatBeginsLater) {
  const auto reserved = bootstrap::listen_at({.host = "127.0.0.1", .port = 0});
  const bootstrap::Endpoint endpoint{.host = "127.0.0.1",
                                     .port = bootstrap::own_address(reserved.get()).port()};
  ::shutdown(reserved.get(), SHUT_RDWR);  // refuses connections until somebody listens again

  on_threads(2, [&](int rank) {
    if (rank == 1) {
      const auto channel = StoreClient::join(credentials(1, 2), endpoint);
      EXPECT_THAT(channel->allgather("one"), ElementsAre("zero", "one"));
    } else {
      auto listener = bootstrap::listen_at(endpoint);
      const auto channel = StoreClient::serve(credentials(0, 2), std::move(listener));
      EXPECT_THAT(channel->allgather("zero"), ElementsAre("zero", "one"));
    }
  });
}

TEST(StoreTest, RefusesARankThatIsThereAlready) {
  StoreJob job(3);
  job.join(1);

  auto other = job.credentials_of(1);
  other.self.process = 77;
  const std::string error = error_of([&] { (void)StoreClient::join(other, job.endpoint()); });

  EXPECT_THAT(error, HasSubstr("rank 1 on host host1 is there already"));
  job.join(2);
  on_threads(3, [&](int rank) { EXPECT_EQ(job.channel(rank)->allgather("").size(), 3U); });
}

// The listener outlives the first World, as one that was inherited does.
TEST(StoreTest, TellsARankThatIsBackTooEarlyForTheNextWorldToRetry) {
  auto listener = StoreJob::listen();
  const auto endpoint = StoreJob::endpoint_of(listener);
  shm::Descriptor for_the_next(::dup(listener.get()));
  auto first = std::make_unique<StoreJob>(2, std::move(listener));
  first->join(1);
  first->channel(1).reset();  // has left
  on_threads(2, [&](int rank) {
    if (rank == 1) {
      const auto channel = StoreClient::join(credentials(1, 2), endpoint);
      EXPECT_THAT(channel->allgather("one"), ElementsAre("zero", "one"));
    } else {
      while (first->statistics().too_early == 0) std::this_thread::yield();
      first.reset();
      const auto next = StoreClient::serve(credentials(0, 2), std::move(for_the_next));
      EXPECT_THAT(next->allgather("zero"), ElementsAre("zero", "one"));
    }
  });
}

// A child that was forked meanwhile has a copy of the socket, as here.
TEST(StoreTest, LeavesItsPortToTheNextStoreThoughACopyOfItsSocketIsOpen) {
  auto listener = StoreJob::listen();
  const auto endpoint = StoreJob::endpoint_of(listener);
  const shm::Descriptor copy(::dup(listener.get()));

  StoreClient::serve(credentials(0, 2), std::move(listener), bootstrap::Listener::own).reset();

  EXPECT_TRUE(bootstrap::listen_at(endpoint).valid());
}

TEST(StoreTest, TellsARankWhoseOldConnectionHasNotEndedToRetry) {
  auto job = std::make_unique<StoreJob>(2, 1s);
  job->join(1);

  EXPECT_THAT(error_of([&] { (void)StoreClient::join(job->credentials_of(1), job->endpoint()); }),
              HasSubstr("rank 0 is still in the job's previous World"));
}

// A rank that left as soon as it had joined made slower ones fail while they connected their node.
TEST(StoreTest, ARankThatLeavesEndsNobodysBootstrap) {
  StatusLog log;
  StoreJob job(3);
  job.join_all();
  on_threads(3, [&](int rank) { (void)job.channel(rank)->allgather("mine"); });
  log.watch(*job.channel(1));

  job.channel(2)->tell({.kind = StatusMessage::Kind::left, .rank = 2});
  (void)log.wait_for(1);
  EXPECT_EQ(job.channel(1)->failure(), "");
  EXPECT_THAT(error_of_allgather(*job.channel(1)), HasSubstr("rank 2 has left already"));

  job.channel(0)->tell({.kind = StatusMessage::Kind::aborted, .rank = 0, .text = "why"});
  (void)log.wait_for(2);
  EXPECT_THAT(job.channel(1)->failure(), HasSubstr("rank 0 aborted: why"));
}

TEST(StoreTest, RefusesASecondRankZero) {
  StoreJob job(1);
  auto other = job.credentials_of(0);
  other.self.process = 77;

  EXPECT_THAT(error_of([&] { (void)StoreClient::join(other, job.endpoint()); }),
              HasSubstr("rank 0 on host host0 is there already"));
}

TEST(StoreTest, RefusesARankThatIsOutOfRange) {
  StoreJob job(2);

  EXPECT_THAT(error_of([&] { (void)StoreClient::join(job.credentials_of(2), job.endpoint()); }),
              HasSubstr("out of range: the job has 2 ranks"));
  job.join(1);
  on_threads(2, [&](int rank) { EXPECT_EQ(job.channel(rank)->allgather("").size(), 2U); });
}

TEST(StoreTest, TellsEveryRankOfAnotherSize) {
  StoreJob job(3);
  job.join(1);
  auto other = job.credentials_of(2);
  other.self.size = 5;
  const auto mismatch =
      AllOf(HasSubstr("rank 2 on host host2 was started as one of 5 ranks"), HasSubstr("of 3"));

  EXPECT_THAT(error_of([&] { (void)StoreClient::join(other, job.endpoint()); }), mismatch);
  EXPECT_THAT(error_of_allgather(*job.channel(0)), mismatch);
  EXPECT_THAT(error_of_allgather(*job.channel(1)), mismatch);
}

TEST(StoreTest, TellsALaterRankOfAnotherVersion) {
  StoreJob job(3);
  auto other = job.credentials_of(2);
  other.self.version = "9.9";
  const auto mismatch =
      AllOf(HasSubstr("rank 2 on host host2 runs version 9.9"), HasSubstr("host host0 runs 1.2.3"));

  EXPECT_THAT(error_of([&] { (void)StoreClient::join(other, job.endpoint()); }), mismatch);
  job.join(1);
  EXPECT_THAT(error_of_allgather(*job.channel(1)), mismatch);
}

TEST(StoreTest, KnowsTheAddressByWhichRanksConnect) {
  StoreJob job(2);
  job.join(1);

  EXPECT_EQ(job.channel(1)->local_address(), "127.0.0.1");
  EXPECT_EQ(job.channel(0)->local_address(), "127.0.0.1");
}

TEST(StoreTest, DoesNotLeaveLoopbackWithoutASecret) {
  auto other = credentials(1, 2);
  other.secret.clear();

  EXPECT_THAT(error_of([&] { (void)StoreClient::join(other, {.host = "192.0.2.1", .port = 1}); }),
              AllOf(HasSubstr("no secret"), HasSubstr("RONDO_SECRET")));
}

TEST(StoreTest, NeedsNoSecretOnLoopback) {
  auto listener = bootstrap::listen_at({.host = "127.0.0.1", .port = 0});
  const auto port = bootstrap::own_address(listener.get()).port();
  auto zero = credentials(0, 2);
  auto one = credentials(1, 2);
  zero.secret.clear();
  one.secret.clear();
  const auto store = StoreClient::serve(zero, std::move(listener));

  const auto rank = StoreClient::join(one, {.host = "127.0.0.1", .port = port});

  EXPECT_NE(rank, nullptr);
}

// Ranks that are processes join the store of which the environment tells.

class JoinStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    ::unsetenv("RONDO_SECRET_FD");
    ::setenv("RONDO_SECRET", "a secret of all ranks", 1);
  }
  void TearDown() override { ::unsetenv("RONDO_SECRET"); }

  static LaunchInfo launch_info(int rank, const bootstrap::Endpoint& endpoint) {
    return {.job = std::string(32, 'd'), .rank = rank, .size = 2, .coordinator = endpoint};
  }
};

TEST_F(JoinStoreTest, UsesTheListenerThatWasInherited) {
  const auto listener = bootstrap::listen_at({.host = "127.0.0.1", .port = 0});
  const bootstrap::Endpoint endpoint{.host = "127.0.0.1",
                                     .port = bootstrap::own_address(listener.get()).port()};

  on_threads(2, [&](int rank) {
    LaunchInfo launch = launch_info(rank, endpoint);
    if (rank == 0) launch.listener = listener.get();

    const JoinedStore store = join_store(launch, "", 60s);

    EXPECT_EQ(store.interface, "lo");
    EXPECT_THAT(store.channel->allgather(std::to_string(rank)), ElementsAre("0", "1"));
  });
}

TEST_F(JoinStoreTest, RefusesAListenerThatDoesNotListen) {
  LaunchInfo launch = launch_info(0, {.host = "127.0.0.1", .port = 1});
  launch.listener = 0;

  EXPECT_THAT(error_of([&] { (void)join_store(launch, "", 60s); }),
              HasSubstr("RONDO_LISTENER=0 is no listening socket"));
}

TEST_F(JoinStoreTest, RefusesUnknownInterfacesBeforeAnybodyWaits) {
  const LaunchInfo launch = launch_info(1, {.host = "127.0.0.1", .port = 1});

  EXPECT_THAT(error_of([&] { (void)join_store(launch, "not_there", 60s); }),
              AllOf(HasSubstr("nothing matches 'not_there'"), HasSubstr("lo (127.0.0.1")));
}

TEST_F(JoinStoreTest, DoesNotListenToOtherHostsWithoutASecret) {
  ::unsetenv("RONDO_SECRET");
  ::setenv("HOME", "/nonexistent", 1);
  const auto listener = bootstrap::listen_at({.host = "0.0.0.0", .port = 0});
  LaunchInfo launch = launch_info(0, {.host = "somewhere", .port = 1});
  launch.listener = listener.get();

  EXPECT_THAT(error_of([&] { (void)join_store(launch, "", 60s); }),
              AllOf(HasSubstr("no secret"), HasSubstr("RONDO_SECRET")));
}

TEST_F(JoinStoreTest, SaysWhenThePortIsTaken) {
  const auto listener = bootstrap::listen_at({.host = "127.0.0.1", .port = 0});
  const auto port = bootstrap::own_address(listener.get()).port();
  const LaunchInfo launch = launch_info(0, {.host = "127.0.0.1", .port = port});

  EXPECT_THAT(error_of([&] { (void)join_store(launch, "", 60s); }),
              HasSubstr("cannot listen at 127.0.0.1:" + std::to_string(port)));
}

}  // namespace
}  // namespace rondo::transport::stores::store_test

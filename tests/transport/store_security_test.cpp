// Connections of others than the job's ranks: nothing that they send has an effect, and none delays
// the ranks.

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bootstrap/sockets.hpp"
#include "support/other_user.hpp"
#include "support/store.hpp"

namespace rondo::transport::stores::store_security_test {
namespace {

using namespace std::chrono_literals;
using bootstrap::Clock;
using rondo::test::OtherUser;
using testing::AllOf;
using testing::HasSubstr;

shm::Descriptor connect_to(const StoreJob& job) {
  const auto addresses = bootstrap::resolve(job.endpoint());
  return bootstrap::connect_until(addresses.front(), Clock::now() + 10s);
}

void send_all(const shm::Descriptor& socket, const std::string& bytes) {
  // The store may have closed the connection.
  [[maybe_unused]] const ssize_t count =
      ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

void expect_that_ranks_join(StoreJob& job) {
  job.join_all();
  on_threads(job.size(), [&](int rank) {
    EXPECT_EQ(job.channel(rank)->allgather("x").size(), static_cast<std::size_t>(job.size()));
  });
}

TEST(StoreSecurityTest, SilentConnectionsKeepNoRankOut) {
  StoreJob job(3);
  std::vector<shm::Descriptor> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(connect_to(job));

  expect_that_ranks_join(job);

  // More than may be open at once: the oldest were closed.
  EXPECT_GE(job.statistics().unverified, 300U - 128U - 3U);
}

// The rest waits in the kernel, which holds its sender up.
TEST(StoreSecurityTest, TheStoreKeepsNoMoreThanOneMessageOfAHandshake) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
  const shm::Descriptor sender(ends[1]);
  bootstrap::Connection store{shm::Descriptor(ends[0]), bootstrap::handshake_cap};
  std::size_t sent = 0;
  const std::string flood(4096, '\0');
  for (ssize_t count = 0; count >= 0;
       sent += static_cast<std::size_t>(std::max<ssize_t>(count, 0))) {
    count = ::send(sender.get(), flood.data(), flood.size(), MSG_NOSIGNAL);
  }

  for (int turn = 0; turn < 10; ++turn) store.exchange();

  int left = 0;
  ASSERT_EQ(::ioctl(store.descriptor(), FIONREAD, &left), 0);
  EXPECT_GE(
      static_cast<std::size_t>(left) + bootstrap::handshake_cap + bootstrap::frame_header_bytes,
      sent);
}

TEST(StoreSecurityTest, Admits4096RanksThatConnectAllAtOnce) {
  constexpr int ranks = 4097;
  try {
    bootstrap::allow_descriptors(2 * ranks + 200, "this test");
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  StoreJob job(ranks);
  std::vector<std::unique_ptr<StepwiseRank>> all;
  for (int rank = 1; rank < ranks; ++rank) {
    all.push_back(std::make_unique<StepwiseRank>(job.endpoint()));
  }
  // All are open now, and none has proved anything.
  for (int rank = 1; rank < ranks; ++rank) {
    ASSERT_NO_FATAL_FAILURE(
        all[static_cast<std::size_t>(rank - 1)]->answer(job.credentials_of(rank)));
  }
  for (const auto& rank : all) {
    const auto reply = rank->next();
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->type, bootstrap::Frame::Type::welcome);
  }
  EXPECT_EQ(job.statistics().unverified, 0U);
}

bootstrap::Credentials without_secret(int rank) {
  auto other = credentials(rank, 2);
  other.secret.clear();
  return other;
}

TEST(StoreSecurityTest, AStoreWithoutASecretRefusesAnotherUser) {
  if (!OtherUser::possible()) GTEST_SKIP() << "only root can be another user, too";
  auto listener = StoreJob::listen();
  const auto endpoint = StoreJob::endpoint_of(listener);
  OtherUser other_user([&] {
    StepwiseRank client(endpoint);
    client.answer(without_secret(1));
    const auto reply = client.next();
    return reply && reply->type == bootstrap::Frame::Type::refused &&
                   reply->payload.find(std::string(32, 'a')) == std::string::npos
               ? 0
               : 1;
  });
  const auto store = StoreClient::serve(without_secret(0), std::move(listener));
  EXPECT_EQ(other_user.wait(), 0);

  EXPECT_NO_THROW((void)StoreClient::join(without_secret(1), endpoint));
}

TEST(StoreSecurityTest, ARankWithoutASecretRefusesAnotherUsersStore) {
  if (!OtherUser::possible()) GTEST_SKIP() << "only root can be another user, too";
  auto listener = StoreJob::listen();
  const auto endpoint = StoreJob::endpoint_of(listener);
  const OtherUser impostor([&] {
    const auto store = StoreClient::serve(without_secret(0), std::move(listener));
    ::pause();
    return 0;
  });

  EXPECT_THAT(error_of([&] { (void)StoreClient::join(without_secret(1), endpoint); }),
              HasSubstr("has no secret, and the store at 127.0.0.1"));
}

TEST(StoreSecurityTest, AThousandShortConnectionsKeepNoRankOut) {
  StoreJob job(3);
  std::jthread storm([&] {
    for (int i = 0; i < 1000; ++i) (void)connect_to(job);
  });

  expect_that_ranks_join(job);
  storm.join();
  on_threads(3, [&](int rank) { EXPECT_EQ(job.channel(rank)->allgather("y").size(), 3U); });
}

TEST(StoreSecurityTest, GarbageIsDropped) {
  StoreJob job(3);
  std::minstd_rand random(1);
  std::vector<shm::Descriptor> sockets;
  for (int i = 0; i < 100; ++i) {
    std::string garbage(random() % 3000, '\0');
    for (char& c : garbage) c = static_cast<char>(random());
    sockets.push_back(connect_to(job));
    send_all(sockets.back(), garbage);
  }
  send_all(connect_to(job), "GET / HTTP/1.1\r\nHost: rondo\r\n\r\n");

  expect_that_ranks_join(job);
}

TEST(StoreSecurityTest, NothingIsTakenBeforeTheHandshake) {
  StoreJob job(2);
  for (const auto type : {bootstrap::Frame::Type::blob, bootstrap::Frame::Type::status,
                          bootstrap::Frame::Type::failed, bootstrap::Frame::Type::answer,
                          bootstrap::Frame::Type::node, bootstrap::Frame::Type::parts}) {
    std::string bytes;
    bootstrap::append_frame(bytes, {.type = type, .payload = std::string(8, '\0') + "mine"});
    const auto socket = connect_to(job);
    send_all(socket, bytes);
  }

  expect_that_ranks_join(job);
}

// Rank 1 says what ranks 0 and 2 have to say; only they themselves are believed.
TEST(StoreSecurityTest, ARankCannotSpeakForRanksThatItDoesNotLead) {
  StoreJob job(3);
  StepwiseRank liar(job.endpoint());
  liar.answer(job.credentials_of(1));
  ASSERT_EQ(liar.next()->type, bootstrap::Frame::Type::welcome);
  liar.connection().send(encode(bootstrap::NodeParts{
      .parts = {{0, "not 0"}, {2, "not 2"}, {4'000'000'000, "nobody"}, {1, "1"}}}));
  job.join(2);

  on_threads(3, [&](int rank) {
    if (rank == 1) return;
    EXPECT_THAT(job.channel(rank)->allgather(std::to_string(rank)),
                testing::ElementsAre("0", "1", "2"));
  });
}

TEST(StoreSecurityTest, AnotherSecretIsRefusedWithTheReason) {
  StoreJob job(2);
  auto other = job.credentials_of(1);
  other.secret = "another secret altogether";

  EXPECT_THAT(error_of([&] { (void)StoreClient::join(other, job.endpoint()); }),
              AllOf(HasSubstr("rank 1 of 2 on host host1"), HasSubstr("secret is not the job's")));
  EXPECT_EQ(job.statistics().unverified, 1U);
  expect_that_ranks_join(job);
}

TEST(StoreSecurityTest, AnotherJobIsRefusedWithTheReason) {
  StoreJob job(2);
  auto other = job.credentials_of(1);
  other.self.job = std::string(32, 'c');

  EXPECT_THAT(error_of([&] { (void)StoreClient::join(other, job.endpoint()); }),
              AllOf(HasSubstr("the store of job aaaa"), HasSubstr("not of cccc")));
  EXPECT_EQ(job.statistics().refused, 1U);
  expect_that_ranks_join(job);
}

TEST(StoreSecurityTest, TwoJobsSideBySideStayApart) {
  StoreJob one(2);
  StoreJob other(3);

  expect_that_ranks_join(one);
  expect_that_ranks_join(other);
}

// A listener at the coordinator's port that is not the store.
class Impostor {
 public:
  explicit Impostor(std::string reply)
      : listener_(bootstrap::listen_at({.host = "127.0.0.1", .port = 0})),
        thread_([this, reply = std::move(reply)] {
          pollfd entry{.fd = listener_.get(), .events = POLLIN, .revents = 0};
          ::poll(&entry, 1, -1);
          const shm::Descriptor client(::accept(listener_.get(), nullptr, nullptr));
          send_all(client, reply);
          char byte = 0;
          while (::recv(client.get(), &byte, 1, 0) > 0) {
          }
        }) {}

  [[nodiscard]] bootstrap::Endpoint endpoint() const {
    return {.host = "127.0.0.1", .port = bootstrap::own_address(listener_.get()).port()};
  }

 private:
  shm::Descriptor listener_;
  std::jthread thread_;
};

TEST(StoreSecurityTest, AStoreThatDoesNotKnowTheSecretIsRefused) {
  std::string welcome;
  bootstrap::append_frame(welcome, bootstrap::StoreHandshake().challenge());
  bootstrap::append_frame(
      welcome, {.type = bootstrap::Frame::Type::welcome, .payload = std::string(64, 'x')});
  const Impostor impostor(welcome);

  EXPECT_THAT(error_of([&] { (void)StoreClient::join(credentials(1, 2), impostor.endpoint()); }),
              HasSubstr("does not trust the store"));
}

TEST(StoreSecurityTest, AnotherProtocolIsReported) {
  std::string reply;
  bootstrap::append_frame(reply, {.payload = "RONDOST0" + std::string(32, 'n')});
  const Impostor impostor(reply);

  EXPECT_THAT(error_of([&] { (void)StoreClient::join(credentials(1, 2), impostor.endpoint()); }),
              HasSubstr("found no store"));
}

}  // namespace
}  // namespace rondo::transport::stores::store_security_test

// Connections of others than the job's ranks: none is heard, none delays the ranks.

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

namespace rondo::transport::test::store_strangers_test {
namespace {

using namespace std::chrono_literals;
using rendezvous::Clock;
using rondo::test::OtherUser;
using testing::AllOf;
using testing::HasSubstr;

shm::Descriptor connect_to(const StoreJob& job) {
  const auto addresses = rendezvous::resolve(job.endpoint());
  return rendezvous::connect_until(addresses.front(), Clock::now() + 10s);
}

void send_all(const shm::Descriptor& socket, const std::string& bytes) {
  // The store may have hung up: that is its right.
  [[maybe_unused]] const ssize_t count =
      ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

void expect_that_ranks_meet(StoreJob& job) {
  job.join_all();
  on_threads(job.size(), [&](int rank) {
    EXPECT_EQ(job.channel(rank)->allgather("x").size(), static_cast<std::size_t>(job.size()));
  });
}

TEST(StoreStrangersTest, MayConnectAndSayNothing) {
  StoreJob job(3);
  std::vector<shm::Descriptor> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(connect_to(job));

  expect_that_ranks_meet(job);

  // More than may be open at once: the oldest gave way.
  EXPECT_GE(job.statistics().strangers, 300U - 128U - 3U);
}

// The rest waits in the kernel, which holds its sender up.
TEST(StoreStrangersTest, MakeTheStoreKeepNoMoreThanOneMessageOfTheHandshake) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
  const shm::Descriptor stranger(ends[1]);
  rendezvous::Connection store{shm::Descriptor(ends[0]), rendezvous::handshake_cap};
  std::size_t sent = 0;
  const std::string flood(4096, '\0');
  for (ssize_t count = 0; count >= 0;
       sent += static_cast<std::size_t>(std::max<ssize_t>(count, 0))) {
    count = ::send(stranger.get(), flood.data(), flood.size(), MSG_NOSIGNAL);
  }

  for (int turn = 0; turn < 10; ++turn) store.exchange();

  int left = 0;
  ASSERT_EQ(::ioctl(store.descriptor(), FIONREAD, &left), 0);
  EXPECT_GE(
      static_cast<std::size_t>(left) + rendezvous::handshake_cap + rendezvous::frame_header_bytes,
      sent);
}

// A rank's part of the handshake, step by step.
class Handshake {
 public:
  explicit Handshake(const rendezvous::Endpoint& endpoint)
      : connection_(
            rendezvous::connect_until(rendezvous::resolve(endpoint).front(), Clock::now() + 10s),
            rendezvous::handshake_cap) {}

  void answer(const rendezvous::Credentials& place) {
    const auto challenge = next();
    ASSERT_TRUE(challenge);
    const auto answer = applicant_.answer(*challenge, place.self, place.secret);
    ASSERT_TRUE(answer);
    connection_.send(*answer);
  }

  [[nodiscard]] std::optional<rendezvous::Frame> next() {
    while (true) {
      if (auto frame = connection_.next()) return frame;
      if (connection_.ended() ||
          !rendezvous::wait_until_ready(connection_.descriptor(), POLLIN, Clock::now() + 60s)) {
        return std::nullopt;
      }
      connection_.exchange();
    }
  }

 private:
  rendezvous::Connection connection_;
  rendezvous::Applicant applicant_;
};

TEST(StoreStrangersTest, AreNotTheRanksOfAJobOf4097ThatComeAllAtOnce) {
  constexpr int ranks = 4097;
  try {
    rendezvous::allow_descriptors(2 * ranks + 200, "this test");
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  StoreJob job(ranks);
  std::vector<std::unique_ptr<Handshake>> all;
  for (int rank = 1; rank < ranks; ++rank) {
    all.push_back(std::make_unique<Handshake>(job.endpoint()));
  }
  // All are open now, and none has proved anything.
  for (int rank = 1; rank < ranks; ++rank) {
    ASSERT_NO_FATAL_FAILURE(all[static_cast<std::size_t>(rank - 1)]->answer(job.place(rank)));
  }
  for (const auto& rank : all) {
    const auto reply = rank->next();
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->type, rendezvous::Frame::Type::welcome);
  }
  EXPECT_EQ(job.statistics().strangers, 0U);
}

// A place without a secret.
rendezvous::Credentials open_place(int rank) {
  auto place = credentials(rank, 2);
  place.secret.clear();
  return place;
}

TEST(StoreStrangersTest, OfAnotherUserAreRefusedByAStoreWithoutASecret) {
  if (!OtherUser::possible()) GTEST_SKIP() << "only root can be another user, too";
  auto listener = StoreJob::listen();
  const auto endpoint = StoreJob::endpoint_of(listener);
  OtherUser stranger([&] {
    Handshake handshake(endpoint);
    handshake.answer(open_place(1));
    const auto reply = handshake.next();
    return reply && reply->type == rendezvous::Frame::Type::refused &&
                   reply->payload.find(std::string(32, 'a')) == std::string::npos
               ? 0
               : 1;
  });
  const auto store = StoreClient::serve(open_place(0), std::move(listener));
  EXPECT_EQ(stranger.wait(), 0);

  EXPECT_NO_THROW((void)StoreClient::join(open_place(1), endpoint));
}

TEST(StoreStrangersTest, OfAnotherUserAreNotTakenForAStoreWithoutASecret) {
  if (!OtherUser::possible()) GTEST_SKIP() << "only root can be another user, too";
  auto listener = StoreJob::listen();
  const auto endpoint = StoreJob::endpoint_of(listener);
  const OtherUser impostor([&] {
    const auto store = StoreClient::serve(open_place(0), std::move(listener));
    ::pause();
    return 0;
  });

  EXPECT_THAT(complaint_of([&] { (void)StoreClient::join(open_place(1), endpoint); }),
              HasSubstr("has no secret, and the store at 127.0.0.1"));
}

TEST(StoreStrangersTest, MayComeAndGoAThousandTimes) {
  StoreJob job(3);
  std::jthread storm([&] {
    for (int i = 0; i < 1000; ++i) (void)connect_to(job);
  });

  expect_that_ranks_meet(job);
  storm.join();
  on_threads(3, [&](int rank) { EXPECT_EQ(job.channel(rank)->allgather("y").size(), 3U); });
}

TEST(StoreStrangersTest, MaySendGarbage) {
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

  expect_that_ranks_meet(job);
}

TEST(StoreStrangersTest, CannotSpeakBeforeTheyHaveProvedThemselves) {
  StoreJob job(2);
  for (const auto type : {rendezvous::Frame::Type::blob, rendezvous::Frame::Type::news,
                          rendezvous::Frame::Type::failed, rendezvous::Frame::Type::answer}) {
    std::string bytes;
    rendezvous::append_frame(bytes, {.type = type, .payload = std::string(8, '\0') + "mine"});
    const auto socket = connect_to(job);
    send_all(socket, bytes);
  }

  expect_that_ranks_meet(job);
}

TEST(StoreStrangersTest, WithAnotherSecretAreToldSo) {
  StoreJob job(2);
  auto place = job.place(1);
  place.secret = "another secret altogether";

  EXPECT_THAT(complaint_of([&] { (void)StoreClient::join(place, job.endpoint()); }),
              AllOf(HasSubstr("rank 1 of 2 on host host1"), HasSubstr("secret is not the job's")));
  EXPECT_EQ(job.statistics().strangers, 1U);
  expect_that_ranks_meet(job);
}

TEST(StoreStrangersTest, OfAnotherJobAreToldSo) {
  StoreJob job(2);
  auto place = job.place(1);
  place.self.job = std::string(32, 'c');

  EXPECT_THAT(complaint_of([&] { (void)StoreClient::join(place, job.endpoint()); }),
              AllOf(HasSubstr("the store of job aaaa"), HasSubstr("not of cccc")));
  EXPECT_EQ(job.statistics().refused, 1U);
  expect_that_ranks_meet(job);
}

TEST(StoreStrangersTest, TwoJobsSideBySideDoNotMeet) {
  StoreJob one(2);
  StoreJob other(3);

  expect_that_ranks_meet(one);
  expect_that_ranks_meet(other);
}

// What listens at the coordinator's port is not the store.
class Impostor {
 public:
  explicit Impostor(std::string greeting)
      : listener_(rendezvous::listen_at({.host = "127.0.0.1", .port = 0})),
        thread_([this, greeting = std::move(greeting)] {
          pollfd entry{.fd = listener_.get(), .events = POLLIN, .revents = 0};
          ::poll(&entry, 1, -1);
          const shm::Descriptor guest(::accept(listener_.get(), nullptr, nullptr));
          send_all(guest, greeting);
          char byte = 0;
          while (::recv(guest.get(), &byte, 1, 0) > 0) {
          }
        }) {}

  [[nodiscard]] rendezvous::Endpoint endpoint() const {
    return {.host = "127.0.0.1", .port = rendezvous::own_address(listener_.get()).port()};
  }

 private:
  shm::Descriptor listener_;
  std::jthread thread_;
};

TEST(StoreStrangersTest, AreNotTakenForTheStore) {
  std::string welcome;
  rendezvous::append_frame(welcome, rendezvous::Challenger().challenge());
  rendezvous::append_frame(
      welcome, {.type = rendezvous::Frame::Type::welcome, .payload = std::string(64, 'x')});
  const Impostor impostor(welcome);

  EXPECT_THAT(
      complaint_of([&] { (void)StoreClient::join(credentials(1, 2), impostor.endpoint()); }),
      HasSubstr("does not trust the store"));
}

TEST(StoreStrangersTest, ThatSpeakAnotherProtocolAreNamed) {
  std::string greeting;
  rendezvous::append_frame(greeting, {.payload = "RONDOST0" + std::string(32, 'n')});
  const Impostor impostor(greeting);

  EXPECT_THAT(
      complaint_of([&] { (void)StoreClient::join(credentials(1, 2), impostor.endpoint()); }),
      HasSubstr("found no store"));
}

}  // namespace
}  // namespace rondo::transport::test::store_strangers_test

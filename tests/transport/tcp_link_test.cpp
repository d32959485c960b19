// The particulars of the link over TCP sockets: how connections are made, refused and shared, which
// addresses are taken, and what is received from a caller.
// tcp_memory_test.cpp has what it keeps of messages, and link_suite.cpp what all links have in
// common.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/error.hpp>

#include "links/plugin.hpp"
#include "links/tcp/endpoint.hpp"
#include "memory/memory.hpp"
#include "message/link.hpp"
#include "support/expect_error.hpp"
#include "support/open_links.hpp"

namespace rondo::transport::tcp_link_test {
namespace {

using test::Bytes;
using test::pattern;
using testing::AllOf;
using testing::HasSubstr;

std::unique_ptr<Link> open_tcp(int rank, int size, const std::string& device = "lo",
                               const std::string& provider = "") {
  return open_plugin("tcp", {.rank = rank, .size = size, .provider = provider, .device = device});
}

std::string failure_of(const std::string& device, const std::string& provider) {
  return test::expect_error(Errc::link_unavailable,
                            [&] { (void)open_tcp(0, 1, device, provider); });
}

class LinkTcpTest : public testing::Test, protected test::OpenLinks {
 protected:
  LinkTcpTest() : OpenLinks("tcp", "", "lo", 2) {}
};

TEST(LinkTcpOpenTest, SaysWhichInterfaceIsUnusable) {
  EXPECT_THAT(failure_of("nosuch0", ""), AllOf(HasSubstr("nosuch0"), HasSubstr("rondo info")));
  EXPECT_THAT(failure_of("lo,nosuch0", ""), HasSubstr("tcp over lo,nosuch0: it has no address"));
  EXPECT_THAT(failure_of("lo", "rc"), HasSubstr("no transports to choose from"));
}

TEST(LinkTcpOpenTest, NamesItsInterface) {
  EXPECT_EQ(open_tcp(0, 1, "lo")->route(), "tcp: sockets over lo");
}

TEST(LinkTcpOpenTest, RefusesWhatIsNotItsAddress) {
  const auto link = open_tcp(0, 2);
  const std::string good = open_tcp(1, 2)->address();
  for (const std::string& address :
       {std::string(), std::string("nonsense"), std::string("127.0.0.1 80"),
        good.substr(0, good.size() - 1), good.substr(0, good.size() - 1) + "x", "h1" + good}) {
    EXPECT_THROW(link->connect(1, address), Error) << address;
  }
  EXPECT_THROW(link->connect(2, good), Error) << "there are two ranks";
}

TEST_F(LinkTcpTest, FailsMessagesToRanksItDoesNotKnow) {
  const auto alone = open_tcp(0, 2);
  Transfer sending;
  Transfer receiving;

  alone->post_send(1, 1, {}, sending);
  alone->post_recv(1, 1, {}, receiving);

  EXPECT_TRUE(sending.failed() && receiving.failed());
  EXPECT_THAT(alone->error_text(sending), HasSubstr("no way to the rank"));
}

TEST_F(LinkTcpTest, FailsMessagesToAPeerThatDoesNotListenAnyMore) {
  close(1);
  Transfer sending;
  const Bytes data(4);

  link(0).post_send(1, 1, data, sending);

  ASSERT_TRUE(finish(sending));
  EXPECT_TRUE(sending.failed());
  EXPECT_THAT(link(0).error_text(sending), HasSubstr("refused"));
}

// While it lives, this process can open nothing more.
class NoMoreDescriptors {
 public:
  NoMoreDescriptors() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const shm::Descriptor first_free(::dup(STDERR_FILENO));
    rlimit none = before_;
    none.rlim_cur = static_cast<rlim_t>(first_free.get());
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  NoMoreDescriptors(const NoMoreDescriptors&) = delete;
  NoMoreDescriptors& operator=(const NoMoreDescriptors&) = delete;
  ~NoMoreDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST_F(LinkTcpTest, FailsBothSidesOfAConnectionForWhichThereIsNoDescriptor) {
  const Bytes data(4);
  Bytes room(4);
  Transfer sending;
  Transfer receiving;
  link(0).post_send(1, 1, data, sending);  // connects
  {
    const NoMoreDescriptors none;
    link(1).post_recv(0, 1, room, receiving);
    ASSERT_TRUE(finish(sending, receiving));
  }

  ASSERT_TRUE(sending.failed() && receiving.failed());
  EXPECT_THAT(link(0).error_text(sending), HasSubstr("refused"));
  EXPECT_THAT(link(1).error_text(receiving), HasSubstr("Too many open files"));
}

// The lower rank's connection would count, but it makes none.
TEST_F(LinkTcpTest, ConnectsAgainToAPeerThatHadNoDescriptorAndNothingToSend) {
  const Bytes data = pattern(4, 5);
  Transfer sending;
  link(1).post_send(0, 1, data, sending);  // connects
  link(1).progress();                      // sends the request
  {
    const NoMoreDescriptors none;
    for (int i = 0; i < 200; ++i) link(0).progress();
  }

  EXPECT_EQ(receive(0, 1, 1, data.size()), data);
  EXPECT_TRUE(finish(sending) && sending.done()) << link(1).error_text(sending);
}

// The kernel reports that there is none whether somebody calls or not.
TEST_F(LinkTcpTest, NeedsNoDescriptorWhileNobodyCalls) {
  Bytes room(4);
  Transfer sending;
  Transfer receiving;
  {
    const NoMoreDescriptors none;
    link(1).post_recv(0, 1, room, receiving);
    for (int i = 0; i < 200; ++i) EXPECT_FALSE(link(1).progress());
    EXPECT_TRUE(receiving.pending());
  }

  const Bytes data = pattern(4, 5);
  link(0).post_send(1, 1, data, sending);

  EXPECT_TRUE(finish(sending, receiving) && receiving.done());
  EXPECT_EQ(room, data);
}

// Both sides begin before either has seen the other.
TEST(LinkTcpPairTest, SharesOneConnectionWhenBothSidesMakeOne) {
  for (int repetition = 0; repetition < 50; ++repetition) {
    std::array<std::unique_ptr<Link>, 2> links = {open_tcp(0, 2), open_tcp(1, 2)};
    links[0]->connect(1, links[1]->address());
    links[1]->connect(0, links[0]->address());
    std::array<Bytes, 2> received = {Bytes(1000), Bytes(1000)};
    const std::array<Bytes, 2> sent = {pattern(1000, 1), pattern(1000, 2)};
    std::array<Transfer, 4> transfers;
    for (const int rank : {0, 1}) {
      const auto i = static_cast<std::size_t>(rank);
      links[i]->post_send(1 - rank, 7, sent[i], transfers[2 * i]);
      links[i]->post_recv(1 - rank, 7, received[i], transfers[2 * i + 1]);
    }

    const auto pending = [&] { return std::ranges::any_of(transfers, &Transfer::pending); };
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (pending() && std::chrono::steady_clock::now() < end) {
      // One side may be far ahead of the other.
      for (int calls = 0; calls <= repetition % 7; ++calls) links[0]->progress();
      links[1]->progress();
    }

    for (std::size_t i = 0; i < transfers.size(); ++i) {
      ASSERT_TRUE(transfers[i].done())
          << repetition << ": " << links[i / 2]->error_text(transfers[i]);
    }
    EXPECT_EQ(received[0], sent[1]);
    EXPECT_EQ(received[1], sent[0]);
  }
}

// A process that has found the port.
class ForeignProcess {
 public:
  explicit ForeignProcess(const std::string& address) {
    std::istringstream words(address);
    std::string host;
    std::uint16_t port = 0;
    words >> host >> port;
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    ::inet_pton(AF_INET, host.c_str(), &to.sin_addr);
    socket_ = shm::Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  }
  void say(std::span<const std::byte> bytes) const {
    EXPECT_EQ(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  [[nodiscard]] bool is_answered() const {
    char byte = 0;
    return ::recv(socket_.get(), &byte, 1, MSG_DONTWAIT) == 1;
  }
  [[nodiscard]] bool is_dropped() const {
    char byte = 0;
    const ssize_t got = ::recv(socket_.get(), &byte, 1, MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno == ECONNRESET);
  }

 private:
  shm::Descriptor socket_;
};

TEST_F(LinkTcpTest, DropsUnverifiedConnectionsAndServesItsPeers) {
  const tcp::ConnectRequest wrong_key{.magic = tcp::request_magic, .rank = 1, .size = 2};
  const ForeignProcess guesses(link(0).address());
  guesses.say(std::as_bytes(std::span(&wrong_key, 1)));
  const ForeignProcess speaks_http(link(0).address());
  speaks_http.say(std::as_bytes(std::span("GET / HTTP/1.1\r\nHost: somewhere.example\r\n")));
  const ForeignProcess says_nothing(link(0).address());
  const ForeignProcess stops_halfway(link(0).address());
  stops_halfway.say(std::as_bytes(std::span(&wrong_key, 1)).first(9));

  exchange(1, 0, 3, pattern(100, 3));
  for (int i = 0; i < 1'000 && !speaks_http.is_dropped(); ++i) progress_all();

  EXPECT_TRUE(guesses.is_dropped());
  EXPECT_TRUE(speaks_http.is_dropped());
  EXPECT_FALSE(says_nothing.is_dropped());
  exchange(0, 1, 4, pattern(100, 4));
}

// It computed while they connected.
TEST(LinkTcpCrowdTest, AdmitsAllPeersThatHaveConnectedMeanwhile) {
  constexpr int ranks = 400;
  const auto late = open_tcp(0, ranks);
  const auto peer = open_tcp(1, ranks);
  const std::string address = late->address();
  const tcp::Key key = tcp::Destination::parse(address, "lo").value().key;
  std::list<ForeignProcess> peers;
  for (int rank = 1; rank < ranks; ++rank) {
    late->connect(rank, peer->address());
    const tcp::ConnectRequest request{.magic = tcp::request_magic,
                                      .key = key,
                                      .rank = static_cast<std::uint32_t>(rank),
                                      .size = ranks};
    peers.emplace_back(address).say(std::as_bytes(std::span(&request, 1)));
  }

  for (int i = 0; i < 200; ++i) late->progress();

  EXPECT_TRUE(std::ranges::all_of(peers, &ForeignProcess::is_answered));
}

TEST_F(LinkTcpTest, SendsNowWhatItHoldsBack) {
  exchange(0, 1, 1, pattern(10, 1));
  const Bytes data = pattern(100, 2);
  Transfer sending;
  link(0).post_send(1, 2, data, sending);
  EXPECT_TRUE(sending.pending());

  link(0).send_now();

  EXPECT_TRUE(sending.done());
  EXPECT_EQ(receive(1, 0, 2, data.size()), data);
}

int rank_of(int family, const char* text) {
  tcp::SocketAddress address;
  auto& four = reinterpret_cast<sockaddr_in&>(address.storage);
  auto& six = reinterpret_cast<sockaddr_in6&>(address.storage);
  void* const bytes = family == AF_INET ? static_cast<void*>(&four.sin_addr) : &six.sin6_addr;
  EXPECT_EQ(::inet_pton(family, text, bytes), 1) << text;
  address.storage.ss_family = static_cast<sa_family_t>(family);
  return tcp::rank_of_address(reinterpret_cast<const sockaddr&>(address.storage));
}

// An interface may have one of 169.254.0.0/16 before the one of its network, as cloud images do.
TEST(TcpAddressTest, TakesAddressesOfOneLinkLast) {
  EXPECT_LT(rank_of(AF_INET, "10.0.0.1"), rank_of(AF_INET6, "2001:db8::1"));
  EXPECT_LT(rank_of(AF_INET6, "2001:db8::1"), rank_of(AF_INET, "169.254.7.7"));
  EXPECT_LT(rank_of(AF_INET6, "2001:db8::1"), rank_of(AF_INET6, "fe80::1"));
  EXPECT_EQ(rank_of(AF_INET, "169.253.7.7"), rank_of(AF_INET, "10.0.0.1"));
}

// A connection, and what is sent over it.
class TcpUnverifiedConnectionTest : public testing::Test {
 protected:
  TcpUnverifiedConnectionTest() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
    connection_.socket = shm::Descriptor(ends[0]);
    other_ = shm::Descriptor(ends[1]);
  }

  void say(std::span<const std::byte> bytes) const {
    EXPECT_EQ(::send(other_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  tcp::HandshakeStep receive_at(std::chrono::nanoseconds time) {
    return tcp::receive_request(connection_, request_, std::chrono::steady_clock::time_point(time));
  }
  [[nodiscard]] std::uint32_t received_rank() const { return request_.rank; }

 private:
  tcp::UnverifiedConnection connection_ = {};
  shm::Descriptor other_ = {};
  tcp::ConnectRequest request_ = {};
};

// It stayed for ever, and what waited for something else never slept.
TEST_F(TcpUnverifiedConnectionTest, IsRefusedAWhileAfterAPartOfItsRequest) {
  using namespace std::chrono_literals;
  const tcp::ConnectRequest request{.magic = tcp::request_magic, .rank = 7, .size = 9};
  EXPECT_EQ(receive_at(1h), tcp::HandshakeStep::waits) << "it has sent nothing";
  EXPECT_EQ(receive_at(2h), tcp::HandshakeStep::waits);

  say(std::as_bytes(std::span(&request, 1)).first(9));

  EXPECT_EQ(receive_at(3h), tcp::HandshakeStep::waits);
  EXPECT_EQ(receive_at(3h + 5s - 1ns), tcp::HandshakeStep::waits);
  EXPECT_EQ(receive_at(3h + 5s), tcp::HandshakeStep::refused);
}

TEST_F(TcpUnverifiedConnectionTest, MaySendItsRequestInParts) {
  using namespace std::chrono_literals;
  const tcp::ConnectRequest request{.magic = tcp::request_magic, .rank = 7, .size = 9};
  say(std::as_bytes(std::span(&request, 1)).first(9));
  EXPECT_EQ(receive_at(1h), tcp::HandshakeStep::waits);
  say(std::as_bytes(std::span(&request, 1)).subspan(9));

  EXPECT_EQ(receive_at(1h + 1s), tcp::HandshakeStep::done);
  EXPECT_EQ(received_rank(), 7U);
}

}  // namespace
}  // namespace rondo::transport::tcp_link_test

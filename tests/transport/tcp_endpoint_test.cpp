// The sockets below the link over TCP: which addresses are taken, and what is received from a
// caller.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include <gtest/gtest.h>

#include "links/tcp/endpoint.hpp"
#include "memory/memory.hpp"

namespace rondo::transport::tcp_endpoint_test {
namespace {

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
}  // namespace rondo::transport::tcp_endpoint_test

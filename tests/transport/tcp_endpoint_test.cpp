// The sockets below the link over TCP: which addresses are taken, and what is heard of a caller.

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
#include "shm/memory.hpp"

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
class TcpStrangerTest : public testing::Test {
 protected:
  TcpStrangerTest() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
    stranger_.socket = shm::Descriptor(ends[0]);
    other_ = shm::Descriptor(ends[1]);
  }

  void say(std::span<const std::byte> bytes) const {
    EXPECT_EQ(::send(other_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  tcp::Greeting hear_at(std::chrono::nanoseconds time) {
    return tcp::take_hello(stranger_, heard_, std::chrono::steady_clock::time_point(time));
  }
  [[nodiscard]] std::uint32_t rank_heard() const { return heard_.rank; }

 private:
  tcp::Stranger stranger_ = {};
  shm::Descriptor other_ = {};
  tcp::Hello heard_ = {};
};

// It stayed for ever, and what waited for something else never slept.
TEST_F(TcpStrangerTest, IsRefusedAWhileAfterAPartOfItsHello) {
  using namespace std::chrono_literals;
  const tcp::Hello hello{.magic = tcp::hello_magic, .rank = 7, .size = 9};
  EXPECT_EQ(hear_at(1h), tcp::Greeting::waits) << "it has said nothing";
  EXPECT_EQ(hear_at(2h), tcp::Greeting::waits);

  say(std::as_bytes(std::span(&hello, 1)).first(9));

  EXPECT_EQ(hear_at(3h), tcp::Greeting::waits);
  EXPECT_EQ(hear_at(3h + 5s - 1ns), tcp::Greeting::waits);
  EXPECT_EQ(hear_at(3h + 5s), tcp::Greeting::refused);
}

TEST_F(TcpStrangerTest, MaySendItsHelloInParts) {
  using namespace std::chrono_literals;
  const tcp::Hello hello{.magic = tcp::hello_magic, .rank = 7, .size = 9};
  say(std::as_bytes(std::span(&hello, 1)).first(9));
  EXPECT_EQ(hear_at(1h), tcp::Greeting::waits);
  say(std::as_bytes(std::span(&hello, 1)).subspan(9));

  EXPECT_EQ(hear_at(1h + 1s), tcp::Greeting::done);
  EXPECT_EQ(rank_heard(), 7U);
}

}  // namespace
}  // namespace rondo::transport::tcp_endpoint_test

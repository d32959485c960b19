// Who is at the other end of a socket.

#include "rendezvous/sockets.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "rendezvous/tcp.hpp"

namespace rondo::transport::rendezvous::sockets_test {
namespace {

using namespace std::chrono_literals;

struct Connected {
  shm::Descriptor client;
  shm::Descriptor server;
};

// Through a listener at `host`, as a client that calls `to`.
Connected connect_through(const std::string& host, const std::string& to) {
  const auto soon = std::chrono::steady_clock::now() + 60s;
  const auto listener = listen_at({.host = host, .port = 0});
  const Endpoint endpoint{.host = to, .port = own_address(listener.get()).port()};
  Connected both{.client = connect_until(resolve(endpoint).front(), soon), .server = {}};
  EXPECT_TRUE(wait_until_ready(listener.get(), POLLIN, soon));
  both.server = shm::Descriptor(::accept(listener.get(), nullptr, nullptr));
  return both;
}

TEST(SocketsTest, KnowTheUserAtTheOtherEndOnThisHost) {
  const std::pair<const char*, const char*> ways[] = {{"127.0.0.1", "127.0.0.1"},
                                                      {"::1", "::1"},
                                                      {"::", "127.0.0.1"},
                                                      {"127.0.0.1", "::ffff:127.0.0.1"}};
  for (const auto& [host, to] : ways) {
    const Connected both = connect_through(host, to);
    EXPECT_EQ(user_of_other_end(both.client.get()), ::geteuid()) << host << " from " << to;
    EXPECT_EQ(user_of_other_end(both.server.get()), ::geteuid()) << host << " from " << to;
  }
}

// It would have root's number in the kernel's table.
TEST(SocketsTest, KnowNoUserOfAnEndThatWasClosed) {
  Connected both = connect_through("127.0.0.1", "127.0.0.1");
  {
    const shm::Descriptor closed = std::move(both.client);
  }

  EXPECT_EQ(user_of_other_end(both.server.get()), std::nullopt);
}

}  // namespace
}  // namespace rondo::transport::rendezvous::sockets_test

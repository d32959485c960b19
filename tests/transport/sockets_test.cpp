// Who is at the other end of a socket, and how many sockets a process may have.

#include "bootstrap/sockets.hpp"

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include <rondo/transport/error.hpp>

namespace rondo::transport::bootstrap::sockets_test {
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

// In a process of its own, whose limits are not the test's.
template <typename Body>
int status_of_child(Body body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WEXITSTATUS(status);
}

TEST(SocketsTest, MayBeMoreThanTheSoftLimitOfOpenFiles) {
  EXPECT_EQ(status_of_child([] {
              rlimit limit{.rlim_cur = 100, .rlim_max = 1000};
              if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return 1;
              allow_descriptors(500, "this test");
              ::getrlimit(RLIMIT_NOFILE, &limit);
              const bool raised = limit.rlim_cur >= 500 && limit.rlim_cur < 1000;
              allow_descriptors(10, "this test");
              const rlim_t before = limit.rlim_cur;
              ::getrlimit(RLIMIT_NOFILE, &limit);
              return raised && limit.rlim_cur == before ? 0 : 2;
            }),
            0);
}

TEST(SocketsTest, ThatTheHardLimitForbidsAreAnError) {
  EXPECT_EQ(status_of_child([] {
              const rlimit limit{.rlim_cur = 100, .rlim_max = 100};
              if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return 1;
              try {
                allow_descriptors(500, "the store of rank 0");
              } catch (const Error& error) {
                const std::string what = error.what();
                return what.find("the store of rank 0 needs 5") != std::string::npos &&
                               what.find("may have 100 (ulimit -Hn)") != std::string::npos
                           ? 0
                           : 2;
              }
              return 3;
            }),
            0);
}

}  // namespace
}  // namespace rondo::transport::bootstrap::sockets_test

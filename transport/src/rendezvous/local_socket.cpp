#include "rendezvous/local_socket.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include <rondo/transport/error.hpp>

#include "rendezvous/sockets.hpp"

namespace rondo::transport::rendezvous {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void fail_locally(const std::string& what) {
  const int number = errno;
  throw Error(Errc::rendezvous_failed,
              "rendezvous: " + what + ": " + std::generic_category().message(number));
}

std::pair<sockaddr_un, socklen_t> address_of(const std::string& job, int rank) {
  const std::string name = "rondo-" + job + "-" + std::to_string(rank);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // A leading zero byte makes the name abstract.
  std::memcpy(address.sun_path + 1, name.data(),
              std::min(name.size(), sizeof address.sun_path - 1));
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

shm::Descriptor make_socket() {
  shm::Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) fail_locally("cannot make a socket");
  return socket;
}

}  // namespace

shm::Descriptor listen_as(const std::string& job, int rank) {
  constexpr int backlog = 4096;
  shm::Descriptor socket = make_socket();
  const auto [address, length] = address_of(job, rank);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    fail_locally("another process is rank " + std::to_string(rank) + " of this job already");
  }
  if (::listen(socket.get(), backlog) != 0) fail_locally("cannot listen");
  return socket;
}

shm::Descriptor connect_to(const std::string& job, int rank, Clock::time_point deadline) {
  using namespace std::chrono_literals;
  const auto [address, length] = address_of(job, rank);
  for (auto pause = 100us; Clock::now() < deadline; pause = std::min(pause * 2, 10'000us)) {
    shm::Descriptor socket = make_socket();
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0) {
      return socket;
    }
    if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR) {
      fail_locally("cannot connect to rank " + std::to_string(rank));
    }
    // The peer has not begun to listen.
    std::this_thread::sleep_for(pause);
  }
  return {};
}

shm::Descriptor accept_from(const shm::Descriptor& listener, Clock::time_point deadline) {
  while (wait_until_ready(listener.get(), POLLIN, deadline)) {
    shm::Descriptor socket(
        ::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.valid()) return socket;
    const bool passing = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
    if (!passing) fail_locally("cannot accept a connection");
  }
  return {};
}

}  // namespace rondo::transport::rendezvous

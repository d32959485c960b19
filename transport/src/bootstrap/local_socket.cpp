#include "bootstrap/local_socket.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include <rondo/transport/error.hpp>

#include "bootstrap/hmac.hpp"
#include "bootstrap/sockets.hpp"

namespace rondo::transport::rendezvous {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void fail_locally(const std::string& what) {
  const int number = errno;
  throw Error(Errc::rendezvous_failed,
              "rendezvous: " + what + ": " + std::generic_category().message(number));
}

// A rank listens by the first of its names that no other user has taken.
constexpr int names_per_rank = 16;

struct LocalAddress {
  sockaddr_un address = {};
  socklen_t length = 0;

  [[nodiscard]] const sockaddr* get() const noexcept {
    return reinterpret_cast<const sockaddr*>(&address);
  }
};

LocalAddress address_of(const std::string& job, const std::string& what) {
  constexpr std::size_t hash_bytes = 16;
  constexpr const char* digits = "0123456789abcdef";
  std::string name = "rondo-";
  for (const char c : hmac_sha256(job, what).substr(0, hash_bytes)) {
    name += digits[static_cast<unsigned char>(c) >> 4U];
    name += digits[static_cast<unsigned char>(c) & 15U];
  }
  LocalAddress found;
  found.address.sun_family = AF_UNIX;
  // A leading zero byte makes the name abstract.
  std::memcpy(found.address.sun_path + 1, name.data(),
              std::min(name.size(), sizeof found.address.sun_path - 1));
  found.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return found;
}

std::vector<LocalAddress> addresses_of(const std::string& job, int rank) {
  std::vector<LocalAddress> all;
  for (int i = 0; i < names_per_rank; ++i) {
    all.push_back(address_of(job, "rank " + std::to_string(rank) + " name " + std::to_string(i)));
  }
  return all;
}

shm::Descriptor make_socket() {
  shm::Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) fail_locally("cannot make a socket");
  return socket;
}

bool is_own_listener(const LocalAddress& address) {
  const shm::Descriptor probe = make_socket();
  return ::connect(probe.get(), address.get(), address.length) == 0 && is_same_user(probe.get());
}

[[noreturn]] void fail_for_thief(int rank, std::optional<uid_t> thief) {
  throw Error(Errc::rendezvous_failed,
              "rendezvous: " + (thief ? "user " + std::to_string(*thief) : std::string("a user")) +
                  " has taken names of rank " + std::to_string(rank) + ", and this is user " +
                  std::to_string(::geteuid()) +
                  "; were the ranks started by different users, or does another user know the id "
                  "of the job?");
}

}  // namespace

shm::Descriptor listen_as(const std::string& job, int rank) {
  constexpr int backlog = 4096;
  shm::Descriptor socket = make_socket();
  for (const LocalAddress& address : addresses_of(job, rank)) {
    if (::bind(socket.get(), address.get(), address.length) == 0) {
      if (::listen(socket.get(), backlog) != 0) fail_locally("cannot listen");
      return socket;
    }
    if (errno != EADDRINUSE) fail_locally("cannot bind a socket");
    if (is_own_listener(address)) {
      throw Error(Errc::rendezvous_failed, "rendezvous: another process is rank " +
                                               std::to_string(rank) + " of this job already");
    }
  }
  fail_for_thief(rank, std::nullopt);
}

shm::Descriptor connect_to(const std::string& job, int rank, Clock::time_point deadline) {
  using namespace std::chrono_literals;
  const std::vector<LocalAddress> addresses = addresses_of(job, rank);
  std::optional<uid_t> thief;
  for (auto pause = 100us; Clock::now() < deadline; pause = std::min(pause * 2, 10'000us)) {
    shm::Descriptor socket = make_socket();
    for (const LocalAddress& address : addresses) {
      if (::connect(socket.get(), address.get(), address.length) == 0) {
        // Nothing was sent yet: not even who this is.
        if (is_same_user(socket.get())) return socket;
        thief = user_of_other_end(socket.get());
        socket = make_socket();
      } else if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR) {
        // EAGAIN: too many wait to be accepted.
        fail_locally("cannot connect to rank " + std::to_string(rank));
      }
    }
    // The peer has not begun to listen.
    std::this_thread::sleep_for(pause);
  }
  if (thief) fail_for_thief(rank, thief);
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

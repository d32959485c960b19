#include "bootstrap/tcp.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>

#include <rondo/transport/error.hpp>

#include "bootstrap/sockets.hpp"

namespace rondo::transport::rendezvous {
namespace {

using Clock = std::chrono::steady_clock;
using Lookup = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

[[noreturn]] void fail_over_tcp(const std::string& what) {
  throw Error(Errc::rendezvous_failed, "rendezvous: " + what);
}

void set(int socket, int level, int option, int value) noexcept {
  ::setsockopt(socket, level, option, &value, sizeof value);
}

Lookup look_up(const Endpoint& endpoint, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(endpoint.port);
  const int error = ::getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &found);
  return {error == 0 ? found : nullptr, &::freeaddrinfo};
}

std::vector<Address> addresses_to_bind(const Endpoint& endpoint) {
  const bool literal = look_up(endpoint, AI_NUMERICHOST) != nullptr;
  if (literal || endpoint.host == "localhost") return resolve(endpoint);
  sockaddr_in6 all6{};
  all6.sin6_family = AF_INET6;
  all6.sin6_addr = in6addr_any;
  all6.sin6_port = htons(endpoint.port);
  sockaddr_in all4{};
  all4.sin_family = AF_INET;
  all4.sin_port = htons(endpoint.port);
  return {Address(reinterpret_cast<const sockaddr*>(&all6), sizeof all6),
          Address(reinterpret_cast<const sockaddr*>(&all4), sizeof all4)};
}

shm::Descriptor try_listen(const Address& address) {
  constexpr int backlog = 4096;
  shm::Descriptor socket(
      ::socket(address.get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return {};
  set(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.get()->sa_family == AF_INET6) set(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (::bind(socket.get(), address.get(), address.length()) != 0) return {};
  if (::listen(socket.get(), backlog) != 0) return {};
  return socket;
}

}  // namespace

Address::Address(const sockaddr* address, socklen_t length)
    : length_(std::min<socklen_t>(length, sizeof storage_)) {
  std::memcpy(&storage_, address, length_);
}

std::string Address::host() const {
  std::array<char, NI_MAXHOST> text{};
  if (length_ == 0 ||
      ::getnameinfo(get(), length_, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
    return "unknown address";
  }
  const std::string host = text.data();
  constexpr std::string_view mapped = "::ffff:";
  const bool is_mapped = host.starts_with(mapped) && host.find('.') != std::string::npos;
  return is_mapped ? host.substr(mapped.size()) : host;
}

std::uint16_t Address::port() const noexcept {
  if (storage_.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_port);
  }
  if (storage_.ss_family != AF_INET) return 0;
  return ntohs(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port);
}

bool Address::loopback() const noexcept {
  constexpr unsigned net = 127;
  if (storage_.ss_family == AF_INET) {
    return ntohl(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr.s_addr) >> 24U == net;
  }
  if (storage_.ss_family != AF_INET6) return false;
  const in6_addr& six = reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&six) || (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == net);
}

Address own_address(int socket) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  return ::getsockname(socket, address, &length) == 0 ? Address(address, length) : Address();
}

Address peer_address(int socket) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  return ::getpeername(socket, address, &length) == 0 ? Address(address, length) : Address();
}

std::vector<Address> resolve(const Endpoint& endpoint) {
  std::vector<Address> addresses;
  const Lookup found = look_up(endpoint, 0);
  for (const addrinfo* entry = found.get(); entry != nullptr; entry = entry->ai_next) {
    addresses.emplace_back(entry->ai_addr, entry->ai_addrlen);
  }
  if (addresses.empty()) {
    fail_over_tcp("the coordinator's name '" + endpoint.host +
                  "' has no address here; correct RONDO_COORDINATOR, or give an address");
  }
  return addresses;
}

shm::Descriptor listen_at(const Endpoint& endpoint) {
  for (const Address& address : addresses_to_bind(endpoint)) {
    shm::Descriptor socket = try_listen(address);
    if (socket.valid()) return socket;
  }
  const int number = errno;
  fail_over_tcp("rank 0 cannot listen at " + to_string(endpoint) + ": " +
                std::generic_category().message(number) +
                "; choose another port, or an address of this host");
}

shm::Descriptor connect_until(const Address& address, Clock::time_point until) {
  shm::Descriptor socket(
      ::socket(address.get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return {};
  if (::connect(socket.get(), address.get(), address.length()) == 0) return socket;
  // Interrupted or not, the kernel goes on connecting.
  if (errno != EINPROGRESS && errno != EINTR) return {};
  if (!wait_until_ready(socket.get(), POLLOUT, until)) {
    errno = ETIMEDOUT;
    return {};
  }
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  errno = error;
  return error == 0 ? std::move(socket) : shm::Descriptor();
}

void watch_line(int socket) noexcept {
  constexpr int probes = 3;
  // Less than the four seconds of the probes: it also ends them, and then rounds up to the next.
  constexpr int unanswered_ms = 3500;
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, probes);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, unanswered_ms);
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
}

void make_nonblocking(int socket) noexcept {
  ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) | O_NONBLOCK);
}

}  // namespace rondo::transport::rendezvous

// Waiting for sockets, who has their other ends, and how many of them a process may open.

#include "bootstrap/sockets.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include <rondo/transport/error.hpp>

namespace rondo::transport::rendezvous {
namespace {

using Clock = std::chrono::steady_clock;

// An end of a TCP connection as the kernel writes it: the address in 32-bit words as they lie in
// memory, and the port. The same IPv4 address may belong to an IPv4 or to an IPv6 socket.
struct KernelNames {
  std::string in_tcp = {};
  std::string in_tcp6 = {};
};

std::string words_in_hex(const void* bytes, std::size_t words) {
  std::string text;
  for (std::size_t i = 0; i < words; ++i) {
    std::uint32_t word = 0;
    std::memcpy(&word, static_cast<const char*>(bytes) + i * sizeof word, sizeof word);
    std::array<char, 9> digits{};
    std::snprintf(digits.data(), digits.size(), "%08X", word);
    text += digits.data();
  }
  return text;
}

KernelNames kernel_names_of(const sockaddr_storage& address) {
  const bool six = address.ss_family == AF_INET6;
  const auto& long_one = reinterpret_cast<const sockaddr_in6&>(address);
  const auto& short_one = reinterpret_cast<const sockaddr_in&>(address);
  std::array<char, 6> port{};
  std::snprintf(port.data(), port.size(), ":%04X",
                unsigned{ntohs(six ? long_one.sin6_port : short_one.sin_port)});
  in6_addr bytes = IN6ADDR_ANY_INIT;
  if (six) {
    bytes = long_one.sin6_addr;
  } else {
    bytes.s6_addr[10] = bytes.s6_addr[11] = 0xFF;  // IPv4 mapped into IPv6
    std::memcpy(&bytes.s6_addr[12], &short_one.sin_addr, sizeof short_one.sin_addr);
  }
  KernelNames names{.in_tcp6 = words_in_hex(&bytes, 4) + port.data()};
  if (IN6_IS_ADDR_V4MAPPED(&bytes))
    names.in_tcp = words_in_hex(&bytes.s6_addr[12], 1) + port.data();
  return names;
}

// The owner of the established connection from `local` to `remote` in one of the kernel's tables.
std::optional<uid_t> owner_in(const char* table, const std::string& local,
                              const std::string& remote) {
  if (local.empty() || remote.empty()) return std::nullopt;
  // The state: a socket that was closed has no owner any more, and would pass for root's.
  const std::string wanted = ": " + local + " " + remote + " 01 ";
  std::ifstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t found = line.find(wanted);
    if (found == std::string::npos) continue;
    std::istringstream rest(line.substr(found + wanted.size()));
    std::string queues;
    std::string timer;
    std::string retransmissions;
    uid_t user = 0;
    if (rest >> queues >> timer >> retransmissions >> user) return user;
  }
  return std::nullopt;
}

std::optional<uid_t> owner_of_tcp_peer(int socket) {
  sockaddr_storage own{};
  sockaddr_storage peer{};
  socklen_t own_length = sizeof own;
  socklen_t peer_length = sizeof peer;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &own_length) != 0 ||
      ::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &peer_length) != 0) {
    return std::nullopt;
  }
  const KernelNames here = kernel_names_of(own);
  const KernelNames there = kernel_names_of(peer);
  // A line can be missed while others come and go.
  constexpr int tries = 3;
  for (int i = 0; i < tries; ++i) {
    if (const auto user = owner_in("/proc/net/tcp", there.in_tcp, here.in_tcp)) return user;
    if (const auto user = owner_in("/proc/net/tcp6", there.in_tcp6, here.in_tcp6)) return user;
  }
  return std::nullopt;
}

std::size_t count_open_descriptors() {
  std::error_code error;
  std::filesystem::directory_iterator open("/proc/self/fd", error);
  std::size_t count = 0;
  for (; !error && open != std::filesystem::directory_iterator(); open.increment(error)) ++count;
  return count;
}

}  // namespace

bool wait_until_ready(int descriptor, short events, Clock::time_point until) {
  while (true) {
    const auto left = std::max<std::chrono::nanoseconds>(until - Clock::now(), {});
    const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
    const timespec time{.tv_sec = seconds.count(), .tv_nsec = (left - seconds).count()};
    pollfd entry{.fd = descriptor, .events = events, .revents = 0};
    const int ready = ::ppoll(&entry, 1, &time, nullptr);
    // Whoever uses the descriptor next learns of any other error.
    if (ready > 0 || (ready < 0 && errno != EINTR)) return true;
    if (ready == 0) return false;
  }
}

std::optional<uid_t> user_of_other_end(int socket) {
  int domain = 0;
  socklen_t length = sizeof domain;
  if (::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &length) != 0) return std::nullopt;
  if (domain == AF_INET || domain == AF_INET6) return owner_of_tcp_peer(socket);
  ucred peer{};
  length = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return std::nullopt;
  return peer.uid;
}

bool is_same_user(int socket) { return user_of_other_end(socket) == ::geteuid(); }

void allow_descriptors(std::size_t count, const char* what) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t needed = count_open_descriptors() + count;
  if (needed <= limit.rlim_cur) return;
  const rlim_t hard = limit.rlim_max;
  limit.rlim_cur = needed;
  if (needed <= hard && ::setrlimit(RLIMIT_NOFILE, &limit) == 0) return;
  throw Error(Errc::rendezvous_failed, "rendezvous: " + std::string(what) + " needs " +
                                           std::to_string(needed) +
                                           " open descriptors, but this process may have " +
                                           std::to_string(hard) + " (ulimit -Hn); raise the limit");
}

}  // namespace rondo::transport::rendezvous

// Sockets: waiting for them, who has their other ends, how many a process may open; TCP; and
// connections that carry frames.
//
// The store serves thousands of connections on one thread, so none of them blocks, and a signal
// never ends a wait: a profiler sends them all the time. Addresses are IPv4 or IPv6, whatever the
// name of the coordinator gives.

#include "bootstrap/sockets.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>

#include <rondo/transport/error.hpp>

#include "base/tcp_socket.hpp"

namespace rondo::transport::bootstrap {
namespace {

// An end of a TCP connection as the kernel's tables write it: the address in 32-bit words as they
// lie in memory, and the port. The same IPv4 address may belong to an IPv4 or to an IPv6 socket.
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

KernelNames kernel_names_of(const Address& address) {
  std::array<char, 6> port{};
  std::snprintf(port.data(), port.size(), ":%04X", unsigned{address.port()});
  const in6_addr bytes = address.as_ipv6();
  KernelNames names{.in_tcp6 = words_in_hex(&bytes, 4) + port.data()};
  if (IN6_IS_ADDR_V4MAPPED(&bytes)) {
    names.in_tcp = words_in_hex(&bytes.s6_addr[12], 1) + port.data();
  }
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
  const Address own = own_address(socket);
  const Address peer = peer_address(socket);
  if (own.length() == 0 || peer.length() == 0) return std::nullopt;
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

// By getsockname() or getpeername(); empty when the socket has none.
template <typename Call>
Address address_by(Call call, int socket) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  return call(socket, address, &length) == 0 ? Address(address, length) : Address();
}

// The directory that is read is one of them, which does no harm.
std::size_t count_open_descriptors() {
  std::error_code error;
  std::filesystem::directory_iterator open("/proc/self/fd", error);
  std::size_t count = 0;
  for (; !error && open != std::filesystem::directory_iterator(); open.increment(error)) ++count;
  return count;
}

// Raises the soft limit to `needed`, or as far as the hard limit allows; that limit. The hard limit
// is kept, so that the program may still raise the soft one.
rlim_t raise_descriptors(rlim_t needed) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return needed;
  if (needed <= limit.rlim_cur) return limit.rlim_max;
  const rlim_t before = std::exchange(limit.rlim_cur, std::min(needed, limit.rlim_max));
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_max : before;
}

// Addresses of a name, freed when they go out of scope; null when there is none.
using Lookup = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

[[noreturn]] void refuse_address(const std::string& what) {
  throw Error(Errc::bootstrap_failed, "bootstrap: " + what);
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
  // IPv6 comes first: a socket bound to it takes IPv4, too. Hosts without IPv6 refuse it.
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

shm::Descriptor make_tcp_socket(const Address& address) {
  return shm::Descriptor(
      ::socket(address.get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

shm::Descriptor try_listen(const Address& address) {
  constexpr int backlog = 4096;
  shm::Descriptor socket = make_tcp_socket(address);
  if (!socket.valid()) return {};
  // A port stays reserved for a minute after its last connection; the next job may want it now.
  set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.get()->sa_family == AF_INET6) set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (::bind(socket.get(), address.get(), address.length()) != 0) return {};
  if (::listen(socket.get(), backlog) != 0) return {};
  return socket;
}

}  // namespace

bool wait_until_ready(int descriptor, short events, Clock::time_point until) {
  while (true) {
    const auto left = std::max<std::chrono::nanoseconds>(until - Clock::now(), {});
    const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
    const timespec time{.tv_sec = seconds.count(), .tv_nsec = (left - seconds).count()};
    pollfd entry{.fd = descriptor, .events = events, .revents = 0};
    const int ready = ::ppoll(&entry, 1, &time, nullptr);
    // Any other error is reported by the next call that uses the descriptor.
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

// An unknown user is not the same: nullopt compares unequal.
bool is_same_user(int socket) { return user_of_other_end(socket) == ::geteuid(); }

void allow_descriptors(std::size_t count, const char* what) {
  const rlim_t needed = count_open_descriptors() + count;
  const rlim_t hard = raise_descriptors(needed);
  if (needed <= hard) return;
  throw Error(Errc::bootstrap_failed, "bootstrap: " + std::string(what) + " needs " +
                                          std::to_string(needed) +
                                          " open descriptors, but this process may have " +
                                          std::to_string(hard) + " (ulimit -Hn); raise the limit");
}

void allow_more_descriptors(std::size_t count) {
  raise_descriptors(count_open_descriptors() + count);
}

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

in6_addr Address::as_ipv6() const noexcept {
  in6_addr bytes = IN6ADDR_ANY_INIT;
  if (storage_.ss_family == AF_INET6) {
    bytes = reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr;
  } else if (storage_.ss_family == AF_INET) {
    const in_addr& four = reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr;
    bytes.s6_addr[10] = bytes.s6_addr[11] = 0xFF;
    std::memcpy(&bytes.s6_addr[12], &four, sizeof four);
  }
  return bytes;
}

bool Address::loopback() const noexcept {
  constexpr unsigned net = 127;
  const in6_addr bytes = as_ipv6();
  return IN6_IS_ADDR_LOOPBACK(&bytes) || (IN6_IS_ADDR_V4MAPPED(&bytes) && bytes.s6_addr[12] == net);
}

Address own_address(int socket) { return address_by(&::getsockname, socket); }

Address peer_address(int socket) { return address_by(&::getpeername, socket); }

std::vector<Address> resolve(const Endpoint& endpoint) {
  std::vector<Address> addresses;
  // A launcher may have told all addresses of a host.
  std::istringstream hosts(endpoint.host);
  for (std::string host; std::getline(hosts, host, ',');) {
    const Lookup found = look_up({.host = host, .port = endpoint.port}, 0);
    for (const addrinfo* entry = found.get(); entry != nullptr; entry = entry->ai_next) {
      addresses.emplace_back(entry->ai_addr, entry->ai_addrlen);
    }
  }
  if (addresses.empty()) {
    refuse_address("the coordinator's name '" + endpoint.host +
                   "' has no address here; correct RONDO_COORDINATOR, or give an address");
  }
  return addresses;
}

shm::Descriptor listen_at(const Endpoint& endpoint, Clock::time_point until) {
  constexpr auto pause = std::chrono::milliseconds(100);
  int number = 0;
  do {
    for (const Address& address : addresses_to_bind(endpoint)) {
      shm::Descriptor socket = try_listen(address);
      if (socket.valid()) return socket;
    }
    number = errno;
    if (number == EADDRINUSE && Clock::now() < until) std::this_thread::sleep_for(pause);
  } while (number == EADDRINUSE && Clock::now() < until);
  refuse_address("rank 0 cannot listen at " + to_string(endpoint) + ": " +
                 std::generic_category().message(number) +
                 "; choose another port, or an address of this host");
}

shm::Descriptor connect_until(const Address& address, Clock::time_point until) {
  shm::Descriptor socket = make_tcp_socket(address);
  if (!socket.valid()) return {};
  if (::connect(socket.get(), address.get(), address.length()) == 0) return socket;
  // Interrupted or not, the kernel goes on connecting.
  if (errno != EINPROGRESS && errno != EINTR) return {};
  if (!wait_until_ready(socket.get(), POLLOUT, until)) {
    errno = ETIMEDOUT;
    return {};
  }
  // Ready to be written means decided: the kernel keeps the error of the attempt.
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  errno = error;
  return error == 0 ? std::move(socket) : shm::Descriptor();
}

// Keepalive finds a peer that is gone while nothing is on the way, the user timeout one that does
// not acknowledge what is.
void detect_dead_peer(int socket) noexcept {
  // Less than the four seconds of the probes: it also ends them, and then rounds up to the next.
  constexpr int unanswered_ms = 3500;
  set_tcp_options(socket);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, unanswered_ms);
}

void make_nonblocking(int socket) noexcept {
  ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) | O_NONBLOCK);
}

Connection::Connection(shm::Descriptor socket, std::size_t cap)
    : socket_(std::move(socket)), reader_(cap) {}

short Connection::events() const noexcept {
  return static_cast<short>(unsent_.empty() ? POLLIN : POLLIN | POLLOUT);
}

// As much as the socket takes is sent at once, and the rest with the next exchange().
void Connection::send(SharedFrame frame) {
  if (ended() || finishing_) return;
  unsent_.push_back(std::move(frame));
  flush();
}

void Connection::exchange() {
  flush();
  receive();
}

std::optional<Frame> Connection::next() {
  std::optional<Frame> frame = reader_.next();
  // It is unknown where the next frame would begin.
  if (reader_.broken() && !ended()) end_ = "it sent what is no message of the store";
  return frame;
}

void Connection::finish_sending() {
  finishing_ = true;
  flush();
}

void Connection::close() {
  if (!ended()) end_ = "this side closed it";
  unsent_.clear();
  sent_ = 0;
  const shm::Descriptor closed = std::exchange(socket_, shm::Descriptor());
}

void Connection::flush() {
  while (!ended() && !unsent_.empty()) {
    const std::string& first = *unsent_.front();
    const ssize_t count =
        ::send(socket_.get(), first.data() + sent_, first.size() - sent_, MSG_NOSIGNAL);
    if (count < 0 && would_wait(errno)) return;
    if (count < 0) {
      // Data that came before the end is still to be read; receive() finds the end, too.
      end_ = std::generic_category().message(errno);
      receive();
      return;
    }
    sent_ += static_cast<std::size_t>(count);
    if (sent_ < first.size()) continue;
    unsent_.pop_front();
    sent_ = 0;
  }
  if (ended()) unsent_.clear();
  if (finishing_) ::shutdown(socket_.get(), SHUT_WR);
}

void Connection::receive() {
  // Enough for one turn: the same thread serves other connections.
  constexpr int most_reads = 16;
  std::array<char, 65536> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled below
  for (int i = 0; i < most_reads; ++i) {
    const std::size_t room = std::min(buffer.size(), reader_.room());
    if (room == 0) return;
    const ssize_t count = ::recv(socket_.get(), buffer.data(), room, 0);
    if (count > 0) {
      reader_.push({buffer.data(), static_cast<std::size_t>(count)});
    } else {
      if (count < 0 && would_wait(errno)) return;
      if (!ended()) {
        end_ = count == 0 ? "its connection closed" : std::generic_category().message(errno);
      }
      return;
    }
  }
}

}  // namespace rondo::transport::bootstrap

// A listening socket, its address as a text, and connecting to it.
//
// A rank listens on one interface, at a port that the kernel chooses. Its address is "HOST PORT
// KEY". The key is 16 random bytes, which a connection must show at its beginning. So a process
// that finds the port cannot pass for a rank: addresses travel through the store, which tells them
// to ranks that know the secret of the job.

#include "links/tcp/endpoint.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/tcp_socket.hpp"
#include "links/plugin.hpp"

namespace rondo::transport::tcp {
namespace {

struct InterfaceAddress {
  std::string interface;
  SocketAddress address{};
  int rank = 0;  // by which the addresses of an interface are preferred: the least first
};

std::vector<InterfaceAddress> list_addresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<InterfaceAddress> all;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    InterfaceAddress& found = all.emplace_back();
    found.interface = entry->ifa_name;
    found.address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    found.rank = rank_of_address(*entry->ifa_addr);
    std::memcpy(&found.address.storage, entry->ifa_addr, found.address.length);
  }
  return all;
}

// The best address of interface `name`; for "", of one that is not loopback.
InterfaceAddress find_address(const std::string& name) {
  std::vector<InterfaceAddress> all = list_addresses();
  std::erase_if(all, [&](const InterfaceAddress& one) {
    return name.empty() ? one.interface == "lo" : one.interface != name;
  });
  if (all.empty()) {
    throw OpenError("tcp over " + (name.empty() ? "any interface" : name) +
                    ": it has no address, or is down; `rondo info` lists the interfaces");
  }
  return *std::ranges::min_element(all, {}, &InterfaceAddress::rank);
}

[[noreturn]] void fail(const std::string& what) {
  throw OpenError("tcp: " + what + ": " + std::generic_category().message(errno));
}

char digit_of(unsigned value) { return "0123456789abcdef"[value & 0xFU]; }

std::string hex_of(const Key& key) {
  std::string text;
  for (const std::byte byte : key) {
    const auto value = static_cast<unsigned>(byte);
    text += digit_of(value >> 4U);
    text += digit_of(value);
  }
  return text;
}

bool parse_key(std::string_view text, Key& key) {
  if (text.size() != 2 * key.size()) return false;
  for (std::size_t i = 0; i < key.size(); ++i) {
    std::uint8_t value = 0;
    const char* const digits = text.data() + 2 * i;
    const auto [end, error] = std::from_chars(digits, digits + 2, value, 16);
    if (error != std::errc() || end != digits + 2) return false;
    key[i] = std::byte{value};
  }
  return true;
}

std::uint16_t port_of(int socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

std::string host_of(int socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length);
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes = &reinterpret_cast<const sockaddr_in&>(address).sin_addr;
  if (address.ss_family == AF_INET6) {
    bytes = &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  }
  return ::inet_ntop(address.ss_family, bytes, text.data(), text.size()) == nullptr ? ""
                                                                                    : text.data();
}

std::optional<SocketAddress> address_of(const std::string& host, std::uint16_t port,
                                        const std::string& interface) {
  SocketAddress to;
  auto& four = reinterpret_cast<sockaddr_in&>(to.storage);
  auto& six = reinterpret_cast<sockaddr_in6&>(to.storage);
  if (::inet_pton(AF_INET, host.c_str(), &four.sin_addr) == 1) {
    four.sin_family = AF_INET;
    four.sin_port = htons(port);
    to.length = sizeof four;
  } else if (::inet_pton(AF_INET6, host.c_str(), &six.sin6_addr) == 1) {
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(port);
    if (IN6_IS_ADDR_LINKLOCAL(&six.sin6_addr)) {
      six.sin6_scope_id = ::if_nametoindex(interface.c_str());
    }
    to.length = sizeof six;
  } else {
    return std::nullopt;
  }
  return to;
}

bool is_exhaustion(int error) noexcept {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

int rank_of_address(const sockaddr& address) noexcept {
  constexpr std::uint32_t link_local = 0xA9FE;  // 169.254.0.0/16
  if (address.sa_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(address);
    return ntohl(four.sin_addr.s_addr) >> 16U == link_local ? 2 : 0;
  }
  const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
  return IN6_IS_ADDR_LINKLOCAL(&six.sin6_addr) ? 2 : 1;
}

std::optional<Destination> Destination::parse(const std::string& text,
                                              const std::string& interface) {
  std::istringstream words(text);
  std::string host;
  std::string key;
  std::uint16_t port = 0;
  Destination to;
  if (!(words >> host >> port >> key) || !parse_key(key, to.key)) return std::nullopt;
  const auto address = address_of(host, port, interface);
  if (!address) return std::nullopt;
  to.address = *address;
  return to;
}

Endpoint::Endpoint(const LinkOptions& options)
    : spare_(::open("/dev/null", O_RDONLY | O_CLOEXEC)),
      size_(static_cast<std::uint32_t>(options.size)) {
  if (!options.provider.empty()) {
    throw OpenError("tcp has no transports to choose from, but '" + options.provider +
                    "' was asked for; name it 'tcp' alone");
  }
  const InterfaceAddress own = find_address(options.device);
  interface_ = own.interface;
  listen(own.address);
  if (::getrandom(key_.data(), key_.size(), 0) != static_cast<ssize_t>(key_.size())) {
    fail("the kernel gives no random bytes");
  }
}

void Endpoint::listen(const SocketAddress& address) {
  const auto* const bound = reinterpret_cast<const sockaddr*>(&address.storage);
  socket_ =
      shm::Descriptor(::socket(bound->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_.valid()) fail("no socket can be made");
  if (::bind(socket(), bound, address.length) != 0 || ::listen(socket(), SOMAXCONN) != 0) {
    fail("nothing can listen on " + interface_);
  }
}

std::string Endpoint::address() const {
  return host_of(socket()) + " " + std::to_string(port_of(socket())) + " " + hex_of(key_);
}

Endpoint::Accepted Endpoint::accept() noexcept {
  shm::Descriptor caller(::accept4(socket(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  const int error = errno;
  if (caller.valid()) {
    set_tcp_options(caller.get());
    return {.socket = std::move(caller)};
  }
  // The kernel says so, too, when there is nobody to be accepted.
  if (is_exhaustion(error) && turn_away()) return {.error = error};
  return {};
}

// The caller would wait for ever for an answer, because the kernel has made the connection.
bool Endpoint::turn_away() noexcept {
  spare_ = {};
  shm::Descriptor caller(::accept4(socket(), nullptr, nullptr, SOCK_CLOEXEC));
  const bool was_there = caller.valid();
  caller = {};
  spare_ = shm::Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  return was_there;
}

bool Endpoint::knows(const ConnectRequest& request) const noexcept {
  std::byte difference{};
  for (std::size_t i = 0; i < key_.size(); ++i) difference |= request.key[i] ^ key_[i];
  return difference == std::byte{} && request.magic == request_magic && request.size == size_ &&
         request.rank < size_;
}

shm::Descriptor start_connecting(const SocketAddress& to) noexcept {
  const auto* const address = reinterpret_cast<const sockaddr*>(&to.storage);
  shm::Descriptor socket(
      ::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return {};
  set_tcp_options(socket.get());
  // Interrupted or not, the kernel goes on connecting.
  const int result = ::connect(socket.get(), address, to.length);
  if (result != 0 && errno != EINPROGRESS && errno != EINTR) return {};
  return socket;
}

// The socket can be written to once it is connected: the request fits into its empty buffer.
HandshakeStep send_request(int socket, const ConnectRequest& request) noexcept {
  const ssize_t sent = ::send(socket, &request, sizeof request, MSG_NOSIGNAL);
  if (sent < 0 && would_wait(errno)) return HandshakeStep::waits;
  if (sent < 0) return HandshakeStep::failed;
  return sent == sizeof request ? HandshakeStep::done : HandshakeStep::refused;
}

HandshakeStep receive_request(UnverifiedConnection& connection, ConnectRequest& request,
                              std::chrono::steady_clock::time_point now) noexcept {
  const int socket = connection.socket.get();
  const ssize_t seen = ::recv(socket, &request, sizeof request, MSG_PEEK);
  if (seen < 0 && would_wait(errno)) return HandshakeStep::waits;
  if (seen < 0) return HandshakeStep::failed;
  if (seen == 0) return HandshakeStep::refused;
  if (seen < ssize_t{sizeof request}) {
    if (!connection.half_since) connection.half_since = now;
    return now - *connection.half_since < handshake_limit ? HandshakeStep::waits
                                                          : HandshakeStep::refused;
  }
  ::recv(socket, &request, sizeof request, 0);
  return HandshakeStep::done;
}

HandshakeStep receive_answer(int socket) noexcept {
  std::uint64_t answer = 0;
  const ssize_t seen = ::recv(socket, &answer, sizeof answer, MSG_PEEK);
  const bool half = seen > 0 && seen < ssize_t{sizeof answer};
  if (half || (seen < 0 && would_wait(errno))) return HandshakeStep::waits;
  if (seen < 0) return HandshakeStep::failed;
  if (seen != sizeof answer || answer != answer_magic) return HandshakeStep::refused;
  ::recv(socket, &answer, sizeof answer, 0);
  return HandshakeStep::done;
}

bool send_answer(int socket) noexcept {
  return ::send(socket, &answer_magic, sizeof answer_magic, MSG_NOSIGNAL) ==
         ssize_t{sizeof answer_magic};
}

std::vector<std::string> usable_interfaces() {
  std::vector<std::string> names;
  for (const InterfaceAddress& one : list_addresses()) {
    if (std::ranges::find(names, one.interface) == names.end()) names.push_back(one.interface);
  }
  return names;
}

}  // namespace rondo::transport::tcp

// Listening sockets for the store of rank 0, bound before anybody is told their port.
//
// Without a secret rank 0 listens on its loopback only, so a socket that takes the place of another
// has to be bound to the same address, of the same family.

#include "launch/listener.hpp"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <vector>

namespace rondo::tools {
namespace {

// An address of either family, without a port.
struct ListenAddress {
  sockaddr_storage storage = {};
  socklen_t length = 0;
};

ListenAddress without_port(const sockaddr* address, socklen_t length) {
  ListenAddress interface;
  interface.length = std::min<socklen_t>(length, sizeof interface.storage);
  std::memcpy(&interface.storage, address, interface.length);
  if (interface.storage.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&interface.storage)->sin6_port = 0;
  } else if (interface.storage.ss_family == AF_INET) {
    reinterpret_cast<sockaddr_in*>(&interface.storage)->sin_port = 0;
  }
  return interface;
}

ListenAddress ipv4_alone(in_addr_t four) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(four);
  return without_port(reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

// Both families at once; hosts without IPv6 have no such address.
ListenAddress both_families() {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_any;
  return without_port(reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

// None, with errno, where that cannot be.
Descriptor try_to_listen(const ListenAddress& interface) {
  Descriptor listener(::socket(interface.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (listener.value() < 0) return {};
  if (interface.storage.ss_family == AF_INET6) {
    const int off = 0;
    ::setsockopt(listener.value(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  const auto* address = reinterpret_cast<const sockaddr*>(&interface.storage);
  if (::bind(listener.value(), address, interface.length) != 0) return {};
  if (::listen(listener.value(), SOMAXCONN) != 0) return {};
  return listener;
}

std::string text_of(const ListenAddress& interface) {
  std::array<char, NI_MAXHOST> text{};
  ::getnameinfo(reinterpret_cast<const sockaddr*>(&interface.storage), interface.length,
                text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return text.data();
}

// At the first of these that this host has.
Descriptor listen_at_one_of(const std::vector<ListenAddress>& interfaces) {
  for (const ListenAddress& interface : interfaces) {
    if (Descriptor listener = try_to_listen(interface); listener.value() >= 0) return listener;
  }
  const int error = errno;
  throw std::system_error(error, std::generic_category(),
                          "cannot listen at " + text_of(interfaces.back()) +
                              ", an address that an interface of this host must have (see ip "
                              "address show; 127.0.0.1 is lo's)");
}

// Empty where a socket has no address of TCP.
std::vector<ListenAddress> address_of_socket(int socket) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  if (::getsockname(socket, address, &length) != 0) return {};
  if (storage.ss_family != AF_INET && storage.ss_family != AF_INET6) return {};
  return {without_port(address, length)};
}

std::vector<ListenAddress> addresses_of_host(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = host == "localhost" ? 0 : AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) {
    return {both_families(), ipv4_alone(INADDR_ANY)};
  }
  std::vector<ListenAddress> interfaces;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    interfaces.push_back(without_port(entry->ai_addr, entry->ai_addrlen));
  }
  ::freeaddrinfo(found);
  return interfaces;
}

}  // namespace

Descriptor listen_on(in_addr_t interface) { return listen_at_one_of({ipv4_alone(interface)}); }

Descriptor listen_beside(int socket) {
  const std::vector<ListenAddress> interface = address_of_socket(socket);
  return interface.empty() ? Descriptor() : listen_at_one_of(interface);
}

Descriptor listen_as_rank_0(std::string host) {
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return listen_at_one_of(addresses_of_host(host));
}

std::uint16_t port_of(const Descriptor& listener) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (::getsockname(listener.value(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
    throw std::system_error(errno, std::generic_category(), "getsockname");
  }
  return ntohs(storage.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
}

}  // namespace rondo::tools

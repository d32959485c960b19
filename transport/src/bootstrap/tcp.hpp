#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "bootstrap/environment.hpp"
#include "shm/memory.hpp"

namespace rondo::transport::rendezvous {

/// An IPv4 or IPv6 address with a port.
class Address {
 public:
  Address() = default;
  Address(const sockaddr* address, socklen_t length);

  /// Without the port: "10.0.0.1", "fe80::1". IPv4 mapped into IPv6 is shown as IPv4.
  [[nodiscard]] std::string host() const;
  [[nodiscard]] std::uint16_t port() const noexcept;
  [[nodiscard]] bool loopback() const noexcept;

  [[nodiscard]] const sockaddr* get() const noexcept {
    return reinterpret_cast<const sockaddr*>(&storage_);
  }
  [[nodiscard]] socklen_t length() const noexcept { return length_; }

 private:
  sockaddr_storage storage_ = {};
  socklen_t length_ = 0;
};

/// Where `socket` is bound, and where it is connected to; empty addresses when it is not.
[[nodiscard]] Address own_address(int socket);
[[nodiscard]] Address peer_address(int socket);

/// All addresses of a name. Throws Error(rendezvous_failed) when it has none.
[[nodiscard]] std::vector<Address> resolve(const Endpoint& endpoint);

/// A listening socket at `endpoint`; port 0 takes a free one. A literal address and "localhost" are
/// bound as they are. A name is bound as all addresses of this host: many hosts' own names mean
/// their loopback only, and one of several interfaces may be dead.
[[nodiscard]] shm::Descriptor listen_at(const Endpoint& endpoint);

/// Invalid, with errno, when it did not succeed until `until`. The socket does not block.
[[nodiscard]] shm::Descriptor connect_until(const Address& address,
                                            std::chrono::steady_clock::time_point until);

/// Makes the kernel notice within 5 s that the other host or the line to it is gone, whether data
/// is on the way or not. A peer that is merely stopped still answers: its kernel does.
void watch_line(int socket) noexcept;

void make_nonblocking(int socket) noexcept;

}  // namespace rondo::transport::rendezvous

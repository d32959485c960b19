#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/environment.hpp"
#include "bootstrap/wire.hpp"
#include "memory/memory.hpp"

namespace rondo::transport::bootstrap {

using Clock = std::chrono::steady_clock;

// Functions for sockets of both kinds, inside a node and between nodes.

/// Waits until `descriptor` is ready for `events` (those of poll()); false when it was not until
/// `until`. Signals do not end the wait.
[[nodiscard]] bool wait_until_ready(int descriptor, short events, Clock::time_point until);

/// The user who has the other end of `socket`, as the kernel says: of a UNIX socket, the process
/// that connected or that listened; of a TCP connection inside this host, the owner of the other
/// socket. Nothing when the kernel does not say, which is so when the other end has been closed.
[[nodiscard]] std::optional<uid_t> user_of_other_end(int socket);

/// Is that the user of this process?
[[nodiscard]] bool is_same_user(int socket);

/// Lets this process open `count` descriptors more than it has open now: raises the soft limit if
/// it is too low, and never lowers it. `what` needs them, for the message. Throws
/// Error(bootstrap_failed) when the hard limit forbids it.
void allow_descriptors(std::size_t count, const char* what);

/// The same as far as the hard limit allows, for what may do with fewer.
void allow_more_descriptors(std::size_t count);

// TCP.

/// An IPv4 or IPv6 address with a port.
class Address {
 public:
  Address() = default;
  Address(const sockaddr* address, socklen_t length);

  /// Without the port: "10.0.0.1", "fe80::1". IPv4 mapped into IPv6 is shown as IPv4.
  [[nodiscard]] std::string host() const;
  [[nodiscard]] std::uint16_t port() const noexcept;
  [[nodiscard]] bool loopback() const noexcept;
  /// Its bytes; IPv4 is mapped into IPv6.
  [[nodiscard]] in6_addr as_ipv6() const noexcept;

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

/// All addresses of a name, or of several separated by commas. Throws Error(bootstrap_failed) when
/// it has none.
[[nodiscard]] std::vector<Address> resolve(const Endpoint& endpoint);

/// A listening socket at `endpoint`; port 0 takes a free one. A literal address and "localhost" are
/// bound as they are. A name is bound as all addresses of this host: many hosts' own names mean
/// their loopback only, and one of several interfaces may be dead. Tries again until `until` while
/// the port is taken. Throws Error(bootstrap_failed).
[[nodiscard]] shm::Descriptor listen_at(const Endpoint& endpoint, Clock::time_point until = {});

/// Invalid, with errno, when it did not succeed until `until`. The socket does not block.
[[nodiscard]] shm::Descriptor connect_until(const Address& address, Clock::time_point until);

/// Makes the kernel notice within 5 s that the other host or the line to it is gone, whether data
/// is on the way or not. A peer that is merely stopped still answers: its kernel does.
void detect_dead_peer(int socket) noexcept;

void make_nonblocking(int socket) noexcept;

/// Frames over a socket that does not block.
///
/// Nothing here waits or throws: what cannot be sent now is kept, and a connection that ended
/// keeps the frames that came before its end. Belongs to one thread at a time.
class Connection {
 public:
  /// `cap` bounds the payloads that are received.
  Connection(shm::Descriptor socket, std::size_t cap);

  [[nodiscard]] int descriptor() const noexcept { return socket_.get(); }

  /// For poll(): readable, and writable when something is kept.
  [[nodiscard]] short events() const noexcept;

  void send(const Frame& frame) { send(share(frame)); }
  /// Keeps a reference to `frame` until it has been sent, and no copy.
  void send(SharedFrame frame);

  /// Sends what was kept, and receives what came, as far as neither waits. No more is received than
  /// one frame of the cap: the rest stays with the kernel until next() has made room.
  void exchange();

  /// The next frame that came. An undecodable one closes the connection.
  [[nodiscard]] std::optional<Frame> next();

  void allow(std::size_t cap) noexcept { reader_.allow(cap); }

  /// Nothing more will be sent than what is kept. The other side learns it after that.
  void finish_sending();

  /// Everything that was to be sent is with the kernel.
  [[nodiscard]] bool all_sent() const noexcept { return unsent_.empty(); }

  /// Closes the socket, and forgets what was not sent and what was not read.
  void close();

  /// The other side has ended, or the line to it.
  [[nodiscard]] bool ended() const noexcept { return !end_.empty(); }
  /// Why it has.
  [[nodiscard]] const std::string& end() const noexcept { return end_; }

 private:
  void flush();
  void receive();

  shm::Descriptor socket_;
  FrameReader reader_;
  std::deque<SharedFrame> unsent_;
  std::size_t sent_ = 0;  ///< of the first
  bool finishing_ = false;
  std::string end_;
};

}  // namespace rondo::transport::bootstrap

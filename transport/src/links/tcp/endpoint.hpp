#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "memory/memory.hpp"
#include "message/link.hpp"

// Where a rank listens, and how two ranks find out that a connection is theirs.

namespace rondo::transport::tcp {

/// Only those to whom the store has told a rank's address know its key.
using Key = std::array<std::byte, 16>;

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

/// By which the addresses of an interface are preferred, the least first: IPv4 comes before IPv6,
/// and those that are valid on one link only come last. They are no sign of a common network, and
/// those of IPv6 need the interface of the other side, too.
[[nodiscard]] int rank_of_address(const sockaddr& address) noexcept;

/// Another rank's listening socket.
struct Destination {
  SocketAddress address{};
  Key key{};

  /// Parses what Endpoint::address() has made, to be reached by `interface`; nothing if it is
  /// something else.
  [[nodiscard]] static std::optional<Destination> parse(const std::string& text,
                                                        const std::string& interface);
};

/// The first bytes of a connection, sent by the rank that has made it. Numbers are in the order of
/// this machine: ranks on processors of another order do not understand each other, and refuse.
struct ConnectRequest {
  std::uint64_t magic = 0;
  Key key{};  ///< of the rank that is called
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
};
inline constexpr std::uint64_t request_magic = 0x316F'6C6C'6548'6452;  // "RdHello1"
/// The answer, if the other rank takes the connection; else it closes it.
inline constexpr std::uint64_t answer_magic = 0x3165'6D6F'636C'6557;  // "Welcome1"

/// This rank's listening socket.
class Endpoint {
 public:
  /// Listens on the interface `options.device`; if that is empty, on one that is not loopback.
  /// Throws OpenError when it has no address.
  explicit Endpoint(const LinkOptions& options);

  [[nodiscard]] const std::string& interface() const noexcept { return interface_; }
  [[nodiscard]] int socket() const noexcept { return socket_.get(); }
  /// For Destination::parse() of other ranks.
  [[nodiscard]] std::string address() const;

  /// The next connection that somebody has made. Without one `error` is 0 when there is none, or
  /// says what this process or the host has run out of; then the caller has been turned away.
  struct Accepted {
    shm::Descriptor socket = {};
    int error = 0;
  };
  [[nodiscard]] Accepted accept() noexcept;
  /// Has `request` been sent by a rank of this job? Whoever guesses keys learns nothing from the
  /// time that this takes.
  [[nodiscard]] bool knows(const ConnectRequest& request) const noexcept;

 private:
  void listen(const SocketAddress& address);
  [[nodiscard]] bool turn_away() noexcept;

  shm::Descriptor socket_;
  std::string interface_;
  shm::Descriptor spare_;  // closed to turn a caller away when descriptors have run out
  std::uint32_t size_;
  Key key_{};
};

/// A socket that is being connected: it can be written to when it is. Invalid, with errno.
[[nodiscard]] shm::Descriptor start_connecting(const SocketAddress& to) noexcept;

/// For how long half a request may stay without its rest.
inline constexpr std::chrono::seconds handshake_limit{5};
/// The outcome of one step of a handshake.
enum class HandshakeStep : std::uint8_t {
  waits,    ///< the socket is not ready
  done,     ///< sent, or received as it should be
  refused,  ///< the other side closed the connection, or answered something else
  failed,   ///< by the network; see errno
};
/// Sends `request` over a socket that is being connected.
[[nodiscard]] HandshakeStep send_request(int socket, const ConnectRequest& request) noexcept;
/// A connection that has been made, and whose request has not yet been received.
struct UnverifiedConnection {
  shm::Descriptor socket = {};
  std::uint32_t watched = 0;  ///< the events for which its owner watches it
  std::optional<std::chrono::steady_clock::time_point> half_since = {};  ///< a part of the request
};
/// Receives the request. A connection that has sent a part of it is refused a handshake_limit
/// later: its socket can be read from until then, so that a rank that waits for it does not sleep.
/// One that sends nothing may take its time.
[[nodiscard]] HandshakeStep receive_request(UnverifiedConnection& connection,
                                            ConnectRequest& request,
                                            std::chrono::steady_clock::time_point now) noexcept;
/// Receives the answer to a request.
[[nodiscard]] HandshakeStep receive_answer(int socket) noexcept;
/// Answers a request. False: the other side has gone.
[[nodiscard]] bool send_answer(int socket) noexcept;

/// The interfaces of this host that are up and have an address, for people.
[[nodiscard]] std::vector<std::string> usable_interfaces();

}  // namespace rondo::transport::tcp

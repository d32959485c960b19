#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "links/link.hpp"
#include "shm/memory.hpp"

// Where a rank listens, and how two ranks find out that a connection is theirs.

namespace rondo::transport::tcp {

/// Only those to whom the store has told a rank's address know its key.
using Key = std::array<std::byte, 16>;

/// Another rank's listening socket.
struct Destination {
  sockaddr_storage address{};
  socklen_t length = 0;
  Key key{};

  /// What Endpoint::address() has made, to be reached by `interface`; nothing if it is something
  /// else.
  [[nodiscard]] static std::optional<Destination> parse(const std::string& text,
                                                        const std::string& interface);
};

/// The first bytes of a connection, sent by the rank that has made it. Numbers are in the order of
/// this machine: ranks on processors of another order do not understand each other, and refuse.
struct Hello {
  std::uint64_t magic = 0;
  Key key{};  ///< of the rank that is called
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
};
inline constexpr std::uint64_t hello_magic = 0x316F'6C6C'6548'6452;
/// The answer, if the other rank takes the connection; else it closes it.
inline constexpr std::uint64_t welcome_magic = 0x3165'6D6F'636C'6557;

/// This rank's listening socket, on one network interface.
class Endpoint {
 public:
  /// Listens on the first of `options.device` that has an address. Throws OpenError.
  explicit Endpoint(const LinkOptions& options);

  [[nodiscard]] const std::string& interface() const noexcept { return interface_; }
  [[nodiscard]] int descriptor() const noexcept { return socket_.get(); }
  /// For Destination::parse() of other ranks.
  [[nodiscard]] std::string address() const;

  /// The next connection that somebody has made; invalid when there is none.
  [[nodiscard]] shm::Descriptor accept() const noexcept;
  /// Has `hello` been sent by a rank of this job? Whoever guesses keys learns nothing from the time
  /// that this takes.
  [[nodiscard]] bool knows(const Hello& hello) const noexcept;

 private:
  shm::Descriptor socket_;
  std::string interface_;
  std::uint32_t size_;
  Key key_{};
};

/// A socket that is being connected: it can be written to when it is. Invalid, with errno.
[[nodiscard]] shm::Descriptor start_connecting(const Destination& to) noexcept;

/// The interfaces of this host that are up and have an address, for people.
[[nodiscard]] std::vector<std::string> usable_interfaces();

}  // namespace rondo::transport::tcp

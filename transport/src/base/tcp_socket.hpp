#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>

// Functions for the sockets of the store and for those of the link over TCP.

namespace rondo::transport {

inline void set_option(int socket, int level, int option, int value) noexcept {
  ::setsockopt(socket, level, option, &value, sizeof value);
}

/// Small messages must not wait for each other's acknowledgements. While nothing is on the way,
/// probes find out within 4 s that the other host or the line to it is gone. While something is,
/// the store's TCP_USER_TIMEOUT finds that out, and in the link is_cut_off().
inline void set_tcp_options(int socket) noexcept {
  constexpr int probes = 3;
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, probes);
}

/// After a call that failed with `error`: may the same call succeed later?
[[nodiscard]] inline bool would_wait(int error) noexcept {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

}  // namespace rondo::transport

#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <string>

#include "files.hpp"

namespace rondo::tools {

// Sockets on which rank 0's store listens, at ports that the kernel chooses. All throw
// std::system_error.

/// At an IPv4 address: INADDR_LOOPBACK or INADDR_ANY.
[[nodiscard]] Descriptor listen_on(in_addr_t interface);

/// At the address of another socket; none where `socket` has none.
[[nodiscard]] Descriptor listen_beside(int socket);

/// Where rank 0 listens for RONDO_COORDINATOR=tcp:HOST:PORT/JOB by itself: a literal address (IPv6
/// in brackets) and "localhost" are taken as they are, a name as all addresses of this host.
[[nodiscard]] Descriptor listen_as_rank_0(std::string host);

/// The port that the kernel chose.
[[nodiscard]] std::uint16_t port_of(const Descriptor& listener);

}  // namespace rondo::tools

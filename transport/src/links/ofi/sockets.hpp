#pragma once

#include <sys/socket.h>

namespace rondo::transport::ofi {

/// Which end of a connection has connected to the other's listening address.
enum class Opened { here, there };

/// Ends the TCP connections of this process between a libfabric endpoint that listens at `own` and
/// one that listens at `peer`; its other end notices, as when a process dies. For those that were
/// opened there, only the address that they came from is known: they end for all endpoints there.
///
/// For a connection that libfabric holds and gives no way to close. Looks at all descriptors.
void cut_connections(const sockaddr_storage& own, const sockaddr_storage& peer, Opened by) noexcept;

}  // namespace rondo::transport::ofi

#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <optional>

namespace rondo::transport::rendezvous {

// What sockets of both kinds need, inside a node and between nodes.

/// Waits until `descriptor` is ready for `events` (those of poll()); false when it was not until
/// `until`. Signals do not end the wait.
[[nodiscard]] bool wait_until_ready(int descriptor, short events,
                                    std::chrono::steady_clock::time_point until);

/// The user who has the other end of `socket`, as the kernel says: of a UNIX socket, the process
/// that connected or that listened; of a TCP connection inside this host, the owner of the other
/// socket. Nothing when the kernel does not say, which is so when the other end has been closed.
[[nodiscard]] std::optional<uid_t> user_of_other_end(int socket);

/// Is that the user of this process?
[[nodiscard]] bool is_same_user(int socket);

/// Lets this process open `count` descriptors more than it has open now: raises the soft limit if
/// it is too low, and never lowers it. `what` needs them, for the message. Throws
/// Error(rendezvous_failed) when the hard limit forbids it.
void allow_descriptors(std::size_t count, const char* what);

}  // namespace rondo::transport::rendezvous

#pragma once

#include <chrono>

namespace rondo::transport::rendezvous {

// What sockets of both kinds need, inside a node and between nodes.

/// Waits until `descriptor` is ready for `events` (those of poll()); false when it was not until
/// `until`. Signals do not end the wait.
[[nodiscard]] bool wait_until_ready(int descriptor, short events,
                                    std::chrono::steady_clock::time_point until);

}  // namespace rondo::transport::rendezvous

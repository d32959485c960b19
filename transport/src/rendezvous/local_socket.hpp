#pragma once

#include <chrono>
#include <string>

#include "shm/descriptor.hpp"

namespace rondo::transport::rendezvous {

// Abstract UNIX sockets, named by job and rank: nothing in the file system to leak, and, other
// than a path, not reachable from another network namespace. Messages keep their boundaries
// (SOCK_SEQPACKET).

[[nodiscard]] shm::Descriptor listen_as(const std::string& job, int rank);

/// Connects to `rank`, waiting until it listens. Invalid when it did not until `deadline`.
[[nodiscard]] shm::Descriptor connect_to(const std::string& job, int rank,
                                         std::chrono::steady_clock::time_point deadline);

/// The next connection; invalid when there was none until `deadline`.
[[nodiscard]] shm::Descriptor accept_from(const shm::Descriptor& listener,
                                          std::chrono::steady_clock::time_point deadline);

}  // namespace rondo::transport::rendezvous

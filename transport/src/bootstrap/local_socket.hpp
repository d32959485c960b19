#pragma once

#include <chrono>
#include <string>

#include "shm/memory.hpp"

namespace rondo::transport::rendezvous {

// Abstract UNIX sockets, one per rank: nothing in the file system to leak, and, other than a path,
// not reachable from another network namespace. Messages keep their boundaries (SOCK_SEQPACKET).
//
// Every user of the host can list the names, and take one that is free. So a name is an HMAC under
// the job's id: whoever sees one cannot tell another. Whoever has a name is asked for its user
// before anything is sent to it, and a rank has several: those that other users have taken are
// passed over. None of the sockets blocks.

[[nodiscard]] shm::Descriptor listen_as(const std::string& job, int rank);

/// Connects to `rank`, waiting until it listens. Invalid when it did not until `deadline`, or
/// Error(rendezvous_failed) if another user has taken a name of it.
[[nodiscard]] shm::Descriptor connect_to(const std::string& job, int rank,
                                         std::chrono::steady_clock::time_point deadline);

/// The next connection; invalid when there was none until `deadline`.
[[nodiscard]] shm::Descriptor accept_from(const shm::Descriptor& listener,
                                          std::chrono::steady_clock::time_point deadline);

}  // namespace rondo::transport::rendezvous

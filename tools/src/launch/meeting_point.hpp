#pragma once

#include <string>

#include "launch/descriptor.hpp"

namespace rondo::tools {

/// Where the ranks of a job meet, as the launcher prepares it.
struct MeetingPoint {
  std::string coordinator = {};  ///< RONDO_COORDINATOR
  Descriptor listener = {};      ///< the socket on which rank 0 listens; none on one node
  Descriptor secret = {};        ///< a file in memory that all ranks inherit; none on one node
};

/// For ranks of one node: "local:" and 128 random bits.
[[nodiscard]] MeetingPoint meet_on_this_node();

/// For ranks that meet as if they were on several nodes: "tcp:127.0.0.1:PORT/" and 128 random
/// bits, a socket that is bound to the port already, and 256 random bits that prove who belongs
/// to the job. Throws std::system_error.
[[nodiscard]] MeetingPoint meet_over_loopback();

/// As above without a secret, on a port of all addresses unless `host` is this machine's loopback:
/// for ranks that have met at `host` before.
[[nodiscard]] MeetingPoint meet_at(const std::string& host);

}  // namespace rondo::tools

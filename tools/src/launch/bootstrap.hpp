#pragma once

#include <string>

#include "files.hpp"

namespace rondo::transport {
class World;
}

namespace rondo::tools {

/// What the ranks of a job need to find each other, as the launcher prepares it.
struct Bootstrap {
  std::string coordinator = {};  ///< RONDO_COORDINATOR
  Descriptor listener = {};      ///< the socket on which rank 0 listens; none on one node
  Descriptor secret = {};        ///< a file in memory that all ranks inherit; none on one node
};

/// For ranks of one node: "local:" and 128 random bits.
[[nodiscard]] Bootstrap bootstrap_on_this_node();

/// For ranks that count as ranks of several nodes: "tcp:127.0.0.1:PORT/" and 128 random bits, a
/// socket that is bound to the port already, and 256 random bits that prove who belongs to the job.
/// Throws std::system_error.
[[nodiscard]] Bootstrap bootstrap_over_loopback();

/// As above without a secret, on a port of all addresses unless `host` is this machine's loopback:
/// for ranks that have connected to `host` before.
[[nodiscard]] Bootstrap bootstrap_at(const std::string& host);

/// Lets the ranks of a job connect once more, for a World with other settings. The environment
/// names one bootstrap; this makes another of the same kind, at another port and with another job
/// id.
class NextBootstrap {
 public:
  /// Collective over `world`, which is to end before prepare().
  explicit NextBootstrap(transport::World& world);

  /// Changes this process' environment: the next World::attach() uses the new bootstrap.
  void prepare();

 private:
  std::string coordinator_ = {};  // empty: there is no launcher, and one rank
  Descriptor listener_ = {};
};

}  // namespace rondo::tools

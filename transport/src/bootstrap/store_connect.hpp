#pragma once

#include <string>

#include "bootstrap/connection.hpp"
#include "bootstrap/environment.hpp"
#include "bootstrap/store_server.hpp"

namespace rondo::transport::rendezvous {

/// A connection to the store, after the handshake.
struct Admission {
  Connection connection;
  std::string host = {};           ///< rank 0's
  std::string local_address = {};  ///< this host's, on the way there
};

/// Connects to the store at `endpoint` and proves to be a member.
///
/// Tries all addresses of the name again and again, with growing pauses of random length so that a
/// thousand ranks do not come in step, until the rendezvous deadline. A refusal is final. Throws
/// Error(rendezvous_failed).
[[nodiscard]] Admission connect_to_store(const Credentials& credentials, const Endpoint& endpoint);

}  // namespace rondo::transport::rendezvous

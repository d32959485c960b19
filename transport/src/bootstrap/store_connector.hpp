#pragma once

#include <string>

#include "bootstrap/environment.hpp"
#include "bootstrap/sockets.hpp"
#include "bootstrap/store.hpp"

namespace rondo::transport::bootstrap {

/// A rank's connection to the store, after the handshake.
struct StoreConnection {
  Connection connection;
  std::string host = {};           // rank 0's
  std::string local_address = {};  // this host's, on the way there
};

/// Connects to the store at `endpoint`, and proves to be a member; see StoreClient::join().
[[nodiscard]] StoreConnection connect_to_store(const Credentials& credentials,
                                               const Endpoint& endpoint);

}  // namespace rondo::transport::bootstrap

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <rdma/fabric.h>

#include "links/ofi/endpoint.hpp"
#include "links/ofi/message.hpp"

namespace rondo::transport::ofi {

/// Another rank, as this one reaches it.
struct Peer {
  fi_addr_t address = FI_ADDR_NOTAVAIL;
  std::int32_t error = 0;  ///< of the connection; all that follows fails with it
  MessageQueue waiting;    ///< sends that libfabric cannot take yet
  bool is_listed = false;  ///< among the link's peers with waiting sends
  bool is_cut = false;     ///< this rank has closed the connection

  /// Makes its address known. Returns 0 or an error.
  [[nodiscard]] int connect(const Endpoint& endpoint, std::string_view blob);
};

/// What a peer's connect() takes: the provider's name, a zero byte, the endpoint's name.
[[nodiscard]] std::string address_blob(const Endpoint& endpoint);

}  // namespace rondo::transport::ofi

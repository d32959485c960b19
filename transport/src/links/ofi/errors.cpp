#include "links/ofi/errors.hpp"

#include "links/link_v1.h"
#include "links/ofi/library.hpp"

namespace rondo::transport::ofi {

const char* error_text(std::int32_t error) {
  switch (error) {
    case error_unknown_peer:
      return "no address is known of this peer";
    case error_message_too_long:
      return "the message is longer than the libfabric provider can send";
    case error_bad_address:
      return "the peer's address is not one of a libfabric link";
    case error_other_provider:
      return "the peer chose another libfabric provider; choose one for all ranks";
    case error_peer_lost:
      return "the connection to the peer is lost";
    case error_link_lost:
      return "the libfabric endpoint is closed after an earlier error";
    case error_peer_cut:
      return "the connection to the peer was closed to take back a message that it did not fetch";
    case rondo_error_truncated:
      return "the message is longer than its receive";
    default:
      return library().strerror(error);
  }
}

}  // namespace rondo::transport::ofi

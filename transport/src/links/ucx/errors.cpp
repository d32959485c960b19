#include "links/ucx/errors.hpp"

#include <ucs/type/status.h>

#include "links/link_v1.h"

namespace rondo::transport::ucx {

const char* error_text(std::int32_t error) {
  switch (error) {
    case rondo_error_truncated:
      return "the message is longer than the memory that it was to be received into";
    case cannot_open:
      return "UCX cannot be opened";
    case not_an_address:
      return "not the address of a ucx link";
    case unlike_versions:
      return "the rank has another major version of UCX; install the same on all nodes";
    case UCS_ERR_UNREACHABLE:
      return "UCX finds no way to the rank (were other transports or interfaces chosen there?)";
    default:
      return ucs_status_string(static_cast<ucs_status_t>(error));
  }
}

}  // namespace rondo::transport::ucx

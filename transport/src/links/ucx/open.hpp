#pragma once

#include <ucp/api/ucp.h>

#include <mutex>
#include <stdexcept>
#include <string>

#include "links/link_v1.h"

namespace rondo::transport::ucx {

/// Why UCX could not be opened, in words.
class OpenError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// UCX, ready for use.
struct Opened {
  ucp_context_h context = nullptr;
  ucp_worker_h worker = nullptr;
  /// Are broken connections reported? Not within shared memory alone.
  ucp_err_handling_mode_t error_mode = UCP_ERR_HANDLING_MODE_PEER;
  std::string route;  ///< "tcp over eth0"
};

/// Held while UCX is opened, closed or asked: its lists are the process'.
[[nodiscard]] std::mutex& one_at_a_time();

/// May be called by several threads. Throws OpenError.
[[nodiscard]] Opened open_ucx(const rondo_link_options& options);
void close_ucx(const Opened& opened);

/// "version 1.13.1", then "provider tcp over eth0, lo", a line each.
[[nodiscard]] std::string describe_ucx();

}  // namespace rondo::transport::ucx

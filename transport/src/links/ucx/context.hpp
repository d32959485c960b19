#pragma once

#include <ucp/api/ucp.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "links/link.hpp"

namespace rondo::transport::ucx {

/// Error numbers of the link's own; those below zero are UCX's, but for Transfer::truncated.
enum : std::int32_t { not_an_address = 1, other_version };

[[nodiscard]] const char* error_text(std::int32_t error);

/// Why UCX could not be opened, as a text for people.
class OpenError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// UCX, ready for use. Several may be made and destroyed by several threads at once.
struct UcxContext {
  /// Throws OpenError.
  explicit UcxContext(const LinkOptions& options);
  UcxContext(const UcxContext&) = delete;
  UcxContext& operator=(const UcxContext&) = delete;
  ~UcxContext();

  ucp_context_h context = nullptr;
  ucp_worker_h worker = nullptr;
  /// Are broken connections reported? Not within shared memory alone.
  ucp_err_handling_mode_t error_mode = UCP_ERR_HANDLING_MODE_PEER;
  std::string route;  ///< "tcp over eth0"
};

/// "version 1.13.1", then "provider tcp over eth0, lo", a line each. May be called by any thread.
[[nodiscard]] std::string describe_ucx();

/// While one exists, what UCX would print on this thread is kept for error texts instead.
/// It is printed, too, if the user has set UCX_LOG_LEVEL.
class LogCapture {
 public:
  LogCapture() noexcept;
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;
  ~LogCapture();
};

/// What UCX logged last on this thread since this was last asked; may be empty.
[[nodiscard]] std::string last_log_message();

}  // namespace rondo::transport::ucx

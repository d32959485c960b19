#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <ucp/api/ucp.h>

#include "links/plugin.hpp"

namespace rondo::transport::ucx {

/// The text of an error for which links/engine.hpp has none.
[[nodiscard]] const char* error_text(std::int32_t error);

/// UCX, ready for use. Several may be made and destroyed by several threads at once.
struct UcxContext {
  /// Throws OpenError.
  explicit UcxContext(const LinkOptions& options);
  UcxContext(const UcxContext&) = delete;
  UcxContext& operator=(const UcxContext&) = delete;
  ~UcxContext();
  /// Leaves it to the end of the process: with a message that it has not ended, UCX would abort().
  void leave();

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

/// The last message that UCX logged on this thread since the last call; may be empty.
[[nodiscard]] std::string last_log_message();

/// Packs the address that ranks tell each other: a mark, UCX's version, then the address of its
/// worker. UCX itself trusts what it gets.
[[nodiscard]] std::string pack_address(std::span<const std::byte> worker);

/// The worker's part of it, once it is known to be one that this UCX can use.
struct UnpackedAddress {
  std::string worker;
  std::int32_t error = 0;
};
[[nodiscard]] UnpackedAddress unpack_address(std::span<const std::byte> address);

}  // namespace rondo::transport::ucx

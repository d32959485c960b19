#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace rondo::transport::ofi {

/// Numbers of transfers' errors: libfabric's own (positive), rondo_error_truncated, these.
enum ErrorNumber : std::int32_t {
  error_unknown_peer = 100'000,
  error_message_too_long,
  error_bad_address,
  error_other_provider,
  error_peer_lost,
  error_link_lost,
  error_peer_cut,
};

[[nodiscard]] const char* error_text(std::int32_t error);

/// What the plug-in throws inside; plugin.cpp lets none of them out.
class Failure : public std::runtime_error {
 public:
  Failure(std::int32_t error, const std::string& text) : std::runtime_error(text), error_(error) {}

  [[nodiscard]] std::int32_t error() const noexcept { return error_; }

 private:
  std::int32_t error_;
};

}  // namespace rondo::transport::ofi

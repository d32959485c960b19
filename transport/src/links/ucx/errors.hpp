#pragma once

#include <cstdint>

namespace rondo::transport::ucx {

/// Error numbers of the link's own; those below zero are UCX's, but for rondo_error_truncated.
enum : int { cannot_open = 1, not_an_address, unlike_versions };

[[nodiscard]] const char* error_text(std::int32_t error);

}  // namespace rondo::transport::ucx

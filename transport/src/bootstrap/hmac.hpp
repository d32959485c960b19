#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace rondo::transport::rendezvous {

/// HMAC-SHA256 (RFC 2104): 32 bytes. An empty secret is a secret, too.
[[nodiscard]] std::string hmac_sha256(std::string_view secret, std::string_view message);

/// Compares in a time that does not depend on where they differ.
[[nodiscard]] bool equal_in_constant_time(std::string_view left, std::string_view right) noexcept;

/// From the kernel's generator. Throws Error(rendezvous_failed) when it has none.
[[nodiscard]] std::string random_bytes(std::size_t count);

}  // namespace rondo::transport::rendezvous

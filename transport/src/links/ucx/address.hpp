#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace rondo::transport::ucx {

/// What ranks tell each other: a mark, UCX's version, then the address of its worker. UCX itself
/// trusts what it gets.
[[nodiscard]] std::string pack_address(std::span<const std::byte> worker);

/// The worker's part of it, once it is known to be one that this UCX can use.
struct UnpackedAddress {
  std::string worker;
  int error = 0;  ///< 0, or one of errors.hpp
};
[[nodiscard]] UnpackedAddress unpack_address(std::span<const std::byte> address);

}  // namespace rondo::transport::ucx

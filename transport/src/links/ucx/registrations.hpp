#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <span>
#include <vector>

namespace rondo::transport::ucx {

/// Memory that UCX was told of once, so that it need not look at it for each message.
class Registrations {
 public:
  [[nodiscard]] ucs_status_t add(ucp_context_h context, std::span<std::byte> memory);
  void remove(ucp_context_h context, const void* base);
  void clear(ucp_context_h context);

  /// The handle of what contains all of it, or null.
  [[nodiscard]] ucp_mem_h find(std::span<const std::byte> memory) const noexcept;

 private:
  struct Registration {
    std::span<std::byte> memory;
    ucp_mem_h handle;
  };
  std::vector<Registration> registrations_;
};

}  // namespace rondo::transport::ucx

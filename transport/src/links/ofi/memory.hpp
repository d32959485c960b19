#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "links/ofi/endpoint.hpp"

namespace rondo::transport::ofi {

/// Registered memory, where the provider wants local buffers registered (FI_MR_LOCAL); elsewhere
/// nothing is done here.
///
/// What lies in memory that was added costs a look-up; any other buffer is registered for its one
/// message.
class Memory {
 public:
  /// `endpoint` is lent, and outlives it.
  explicit Memory(const Endpoint& endpoint) noexcept
      : endpoint_(&endpoint), needed_(endpoint.wants(FI_MR_LOCAL)) {}

  /// 0 or an error. The same `base` may be added again when it has grown.
  [[nodiscard]] int add(void* base, std::size_t bytes);
  void remove(void* base);
  void clear() noexcept { regions_.clear(); }

  /// A buffer's registration for one message: `once` is the caller's to drop().
  struct Lease {
    void* descriptor = nullptr;
    fid_mr* once = nullptr;
  };
  /// 0 or an error.
  [[nodiscard]] int lease(const void* data, std::size_t bytes, Lease& lease);
  static void drop(Lease& lease) noexcept;

 private:
  struct Region {
    std::size_t bytes = 0;
    std::vector<Owned<fid_mr>> registrations;  // messages may still use those before the last
  };

  int register_memory(const void* base, std::size_t bytes, fid_mr*& registration);

  const Endpoint* endpoint_;
  std::map<std::uintptr_t, Region> regions_;  // by first address
  std::uint64_t next_key_ = 1;
  bool needed_;
};

}  // namespace rondo::transport::ofi

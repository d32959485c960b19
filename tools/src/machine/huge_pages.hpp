#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rondo::tools {

/// Huge pages of one size that the administrator has set aside.
struct HugePagePool {
  std::uint64_t page_bytes = 0;
  std::uint64_t total = 0;
  std::uint64_t free = 0;
};

/// The kernel's pools, smallest pages first; empty where there are none.
[[nodiscard]] std::vector<HugePagePool> huge_page_pools();

/// The kernel's setting for transparent huge pages of shared memory: always, within_size, advise,
/// never, deny, force; or "unknown".
[[nodiscard]] std::string transparent_shared_pages();

}  // namespace rondo::tools

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rondo::tools {

/// A core that this process may use.
struct Core {
  int numa_domain = 0;         ///< counts the domains that have such cores, from 0
  std::vector<int> cpus = {};  ///< the kernel's numbers of its hardware threads, never empty
};

struct Cache {
  int level = 0;
  std::uint64_t bytes = 0;
  int count = 0;
};

/// The part of this machine that the process may use: what its cpuset and its affinity leave. Of
/// the memory, all.
struct Machine {
  std::string processor = {};
  std::vector<Core> cores = {};  ///< neighbours in the hardware are neighbours here
  int numa_domains = 1;
  std::vector<Cache> caches = {};       ///< data and unified caches, smallest level first
  std::uint64_t memory_bytes = 0;       ///< all of the machine's, as the kernel's MemTotal says
  std::uint64_t numa_memory_bytes = 0;  ///< of its NUMA domains, as hwloc counts them
};

/// Asks hwloc.
[[nodiscard]] Machine read_machine();

/// Allows the calling thread, and what it starts, to run on `cpus` only. Throws
/// std::system_error.
void bind_to(const std::vector<int>& cpus);

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

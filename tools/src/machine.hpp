#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <rondo/transport/usable_cpus.hpp>

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

/// The part of this machine that the process may use: what its cpuset and its affinity leave. The
/// memory is that of the whole machine.
struct Machine {
  std::string processor = {};
  std::vector<Core> cores = {};  ///< neighbours in the hardware are neighbours here
  std::optional<transport::CpuQuota> quota = {};
  int numa_domains = 1;
  std::vector<Cache> caches = {};       ///< data and unified caches, smallest level first
  std::uint64_t memory_bytes = 0;       ///< all of the machine's, as the kernel's MemTotal says
  std::uint64_t numa_memory_bytes = 0;  ///< of its NUMA domains, as hwloc counts them

  /// How many threads should compute at once: one for each core, or as many as the quota grants.
  [[nodiscard]] int threads() const noexcept;
};

/// As other hosts may know this one.
[[nodiscard]] std::string host_name();

/// Asks hwloc.
[[nodiscard]] Machine read_machine();

/// Gives the calling thread the CPUs with which the process was started (initial_cpus.cpp). To be
/// called first in main(): other threads and processes inherit them from there.
void restore_initial_cpus();

/// Huge pages of one size that the administrator has set aside.
struct HugePagePool {
  std::uint64_t page_bytes = 0;
  std::uint64_t total = 0;
  std::uint64_t free = 0;
};

/// The kernel's pools, smallest pages first; empty where there are none. `root` is where the
/// machine's files are.
[[nodiscard]] std::vector<HugePagePool> huge_page_pools(const std::filesystem::path& root = "/");

/// The kernel's setting for transparent huge pages of shared memory: always, within_size, advise,
/// never, deny, force; or "unknown".
[[nodiscard]] std::string transparent_shared_pages(const std::filesystem::path& root = "/");

/// Whether ranks are bound to cores.
enum class Binding { automatic, none };

/// A user's request for a placement; 0 leaves the choice to the machine.
struct PlacementRequest {
  int ranks = 0;
  int threads = 0;  ///< per rank
  Binding binding = Binding::automatic;
  bool oversubscribe = false;
};

/// Where the ranks of one node run.
struct Placement {
  int threads = 1;                            ///< of every rank
  std::vector<std::vector<Core>> cores = {};  ///< per rank; empty: not bound
  std::string note = {};                      ///< why ranks are not bound; may be empty

  [[nodiscard]] int ranks() const noexcept { return static_cast<int>(cores.size()); }
};

/// Divides the cores evenly: every rank gets a set of its own, and no set crosses a NUMA domain
/// that it need not cross.
///
/// Defaults: one rank per NUMA domain, and as many threads as the smallest share has cores; with a
/// quota not more than it grants to all ranks together, but one thread for each. With more ranks
/// than cores each rank gets one thread and none is bound. Throws UsageError when threads that were
/// asked for exceed the cores, unless `oversubscribe`.
[[nodiscard]] Placement place(const Machine& machine, const PlacementRequest& request);

/// The kernel's numbers of all their hardware threads.
[[nodiscard]] std::vector<int> cpus_of(const std::vector<Core>& cores);

/// "core 3", "cores 0-3", "cores 0-1,8-9": by the first hardware thread of each.
[[nodiscard]] std::string describe(const std::vector<Core>& cores);

}  // namespace rondo::tools

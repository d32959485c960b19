#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <rondo/transport/export.hpp>

namespace rondo::transport {

/// The time that a control group grants to its processes together, of version 1 or 2.
struct CpuQuota {
  double cpus = 0.0;        ///< the time of so many CPUs
  std::string source = {};  ///< the file that says so

  /// How many threads should compute under it: `cpus` rounded up, at least 1.
  [[nodiscard]] RONDO_TRANSPORT_API int threads() const noexcept;
};

/// The least quota of this process's group and of the groups around it; nothing: no limit. `root`
/// is where the machine's files are.
[[nodiscard]] RONDO_TRANSPORT_API std::optional<CpuQuota> cpu_quota(
    const std::filesystem::path& root = "/");

/// The folders in which a limit of `controller`, such as "cpu" or "memory", may stand for this
/// process: those of its groups of both versions, and of all groups around them.
[[nodiscard]] RONDO_TRANSPORT_API std::vector<std::filesystem::path> control_groups(
    const std::filesystem::path& root, const std::string& controller);

/// The CPUs that this process may use, and its share of their time.
struct UsableCpus {
  std::vector<int> cpus = {};          ///< the kernel's numbers, ascending
  std::optional<CpuQuota> quota = {};  ///< of all these CPUs together
  /// OpenMP has bound the calling thread, and so what it starts, to a part of `cpus`.
  bool bound_by_openmp = false;

  /// How many threads should compute at once: one for each CPU, or as many as the quota grants.
  [[nodiscard]] RONDO_TRANSPORT_API int threads() const noexcept;
};

/// The CPUs are those of the calling thread. Only if OpenMP has bound that thread to one of its
/// places (OMP_PROC_BIND, OMP_PLACES, GOMP_CPU_AFFINITY), they are those of all places.
[[nodiscard]] RONDO_TRANSPORT_API UsableCpus usable_cpus();

/// Where the calling thread may run, whoever has bound it; empty when the kernel does not say.
[[nodiscard]] RONDO_TRANSPORT_API std::vector<int> thread_cpus();

/// Allows the calling thread, and what it starts, to run on `cpus` only; usable_cpus() then takes
/// the CPUs of a thread as they are. Throws std::system_error.
RONDO_TRANSPORT_API void bind_to(const std::vector<int>& cpus);

}  // namespace rondo::transport

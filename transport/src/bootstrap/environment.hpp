#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rondo::transport::bootstrap {

/// A host (name, IPv4, or IPv6 without brackets) and a TCP port.
struct Endpoint {
  std::string host = {};
  std::uint16_t port = 0;

  bool operator==(const Endpoint&) const = default;
};

/// "host:1234", "[fe80::1]:1234".
[[nodiscard]] std::string to_string(const Endpoint& endpoint);

/// What a launcher told this process.
struct LaunchInfo {
  std::string job;  ///< unique to the job: 32 hexadecimal digits
  int rank = 0;
  int size = 1;

  /// Where rank 0's store is; nothing when all ranks are on this host and need no store.
  std::optional<Endpoint> coordinator = {};
  /// The inherited socket on which rank 0 listens for the store, or -1: it makes its own.
  int listener = -1;

  /// Inherited memory to record into (see FlightRecord), or -1: the rank makes its own.
  int recorder = -1;

  /// The job's secret where the ranks have agreed on one; else it is what read_secret() finds.
  std::optional<std::string> secret = {};

  // Defaults of the World's options; what is not set in the environment has no effect.
  std::string fabric = {};
  int fake_nodes = 0;
  std::string interface = {};
  double latency_us = 0;
  double bandwidth_gbs = 0;
};

/// Reads the launcher's variables; nothing when none of the first three is set.
///
///     RONDO_COORDINATOR    local:JOB or tcp:HOST:PORT/JOB; JOB is 32 hexadecimal digits, HOST a
///                          name, an IPv4 address or an IPv6 address in brackets
///     RONDO_RANK           0 to RONDO_SIZE - 1
///     RONDO_SIZE
///     RONDO_LISTENER       a descriptor number (rank 0 of tcp: only)
///     RONDO_RECORDER       a descriptor number
///     RONDO_FABRIC, RONDO_FAKE_NODES, RONDO_INTERFACE, RONDO_LATENCY_US, RONDO_BANDWIDTH_GBS
///
/// Throws Error(rendezvous_failed) when they are incomplete or make no sense, and when another
/// launcher (Slurm, Open MPI, MPICH) says that this process is one of several.
[[nodiscard]] std::optional<LaunchInfo> read_environment();

/// Reads the variables of the last line alone into `launch`, for ranks that no launcher has told
/// of their job. Throws as above.
void read_link_settings(LaunchInfo& launch);

/// For messages.
[[nodiscard]] std::string host_name();

/// Equal for processes that can map each other's memory: boot id and network namespace.
[[nodiscard]] std::string machine_key();

/// A bit for each CPU on which a thread may run.
using CpuMask = std::array<std::uint64_t, 16>;

/// Where the calling thread may run.
[[nodiscard]] CpuMask own_cpus();

/// Would ranks that may run on these CPUs (one mask each) have to share them? Respects the
/// control group's quota, too.
[[nodiscard]] bool outnumber_cpus(const std::vector<CpuMask>& ranks);

}  // namespace rondo::transport::bootstrap

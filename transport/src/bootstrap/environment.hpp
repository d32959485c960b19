#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
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

/// The facts that a launcher told this process.
struct LaunchInfo {
  std::string job;  ///< unique to the job: 32 hexadecimal digits
  int rank = 0;
  int size = 1;

  /// Where rank 0's store is; nothing when all ranks are on this host and need no store.
  std::optional<Endpoint> coordinator = {};
  /// The inherited socket on which rank 0 listens for the store, or -1: it makes its own.
  int listener = -1;
  /// Was the store's port computed from the job's name? Then a process that an earlier start of the
  /// job has left may still have it for a while.
  bool derived_port = false;
  /// The job's secret, told by the launcher; empty: read_secret() finds it.
  std::string secret = {};

  /// Inherited memory to record into (see FlightRecord), or -1: the rank makes its own.
  int recorder = -1;

  // Defaults of the World's options; what is not set in the environment has no effect.
  std::string fabric = {};
  int fake_nodes = 0;
  std::string interface = {};
  double latency_us = 0;
  double bandwidth_gbs = 0;
};

/// Reads Rondo's own variables; nothing when none of the first three is set.
///
///     RONDO_COORDINATOR    local:JOB or tcp:HOST:PORT/JOB; JOB is 32 hexadecimal digits, HOST a
///                          name, an IPv4 address or an IPv6 address in brackets, or several of
///                          them, separated by commas, of which any may work
///     RONDO_RANK           0 to RONDO_SIZE - 1
///     RONDO_SIZE
///     RONDO_LISTENER       a descriptor number (rank 0 of tcp: only)
///     RONDO_RECORDER       a descriptor number
///     RONDO_FABRIC, RONDO_FAKE_NODES, RONDO_INTERFACE, RONDO_LATENCY_US, RONDO_BANDWIDTH_GBS
///
/// Throws Error(bootstrap_failed) when they are incomplete or make no sense.
[[nodiscard]] std::optional<LaunchInfo> read_environment();

// For those who read other launchers' variables.

/// Reads those that do not tell which rank this is: RONDO_LISTENER and what follows it above.
void read_options(LaunchInfo& launch);

/// Throws Error(bootstrap_failed) when there are more nodes than ranks.
void check_fake_nodes(const LaunchInfo& launch);

/// Sets the job, and where its store is unless the job is local. False when `text` is neither
/// "local:JOB" nor "tcp:HOST:PORT/JOB".
[[nodiscard]] bool parse_coordinator(std::string_view text, LaunchInfo& launch);

/// The value of a variable; one that is empty counts as not set.
[[nodiscard]] std::optional<std::string> variable(const char* name);

/// `text`, the value of variable `name`, as a number. Throws Error(bootstrap_failed) that names it
/// when it is not a number, or below `least`.
[[nodiscard]] int number(const char* name, const std::string& text, int least);

/// The whole of `text` as a number; nothing when it is not a number.
[[nodiscard]] std::optional<std::uint64_t> parse_number(std::string_view text);

/// For messages.
[[nodiscard]] std::string host_name();

/// Equal for processes that can map each other's memory: boot id and network namespace.
[[nodiscard]] std::string machine_key();

/// Equal for ranks that count as one node: that of the machine, and with fake nodes the number of
/// the rank's among them. They are contiguous ranks, as evenly as they go.
[[nodiscard]] std::string node_key(int rank, int size, int fake_nodes);

/// A bit for each CPU on which a thread may run.
using CpuMask = std::array<std::uint64_t, 16>;

/// Where the calling thread may run.
[[nodiscard]] CpuMask own_cpus();

/// Would ranks that may run on these CPUs (one mask each) have to share them? Respects the
/// control group's quota, too; `root` is where the machine's files are.
[[nodiscard]] bool outnumber_cpus(const std::vector<CpuMask>& ranks,
                                  const std::filesystem::path& root = "/");

}  // namespace rondo::transport::bootstrap

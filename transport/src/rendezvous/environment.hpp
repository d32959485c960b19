#pragma once

#include <optional>
#include <string>

namespace rondo::transport::rendezvous {

/// What a launcher told this process.
struct Placement {
  std::string job;  ///< unique to the job: 32 hexadecimal digits
  int rank = 0;
  int size = 1;
};

/// Reads RONDO_COORDINATOR ("local:JOB"), RONDO_RANK and RONDO_SIZE; nothing when none is set.
/// Throws Error(rendezvous_failed) when they are incomplete or make no sense, and when another
/// launcher (Slurm, Open MPI, MPICH) says that this process is one of several.
[[nodiscard]] std::optional<Placement> read_environment();

}  // namespace rondo::transport::rendezvous

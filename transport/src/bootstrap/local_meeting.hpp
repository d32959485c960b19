#pragma once

#include <sched.h>

#include <cstdint>
#include <string>
#include <vector>

#include <rondo/transport/world.hpp>

#include "bootstrap/environment.hpp"
#include "core/world_core.hpp"

namespace rondo::transport::rendezvous {

/// What meeting the ranks of a node gives.
struct Meeting {
  std::vector<Peer> peers = {};      ///< of all ranks of the World; empty where not met
  std::vector<cpu_set_t> cpus = {};  ///< of those that were met
};

/// Meets `members`, ranks of a job that are all on this node and this one among them, and maps
/// their memory.
///
/// Each rank listens on a socket named by job and rank, sends its Hello to all lower ranks,
/// answers all higher ones, and reads the lower ones' answers: no rank waits in a circle. A lower
/// rank that hangs up instead of answering is still in an earlier meeting of the job, so it is
/// greeted again. Strangers are dropped. Throws Error(rendezvous_failed) that names who did not
/// come.
[[nodiscard]] Meeting meet(const Placement& placement, const std::vector<int>& members,
                           const WorldOptions& options);

[[nodiscard]] std::uint64_t random_nonce();
[[nodiscard]] std::string host_name();

}  // namespace rondo::transport::rendezvous

#pragma once

#include <rondo/transport/world.hpp>

#include "bootstrap/environment.hpp"
#include "shm/memory.hpp"

namespace rondo::transport::bootstrap {

/// What the ranks of World::create() have agreed on.
struct Agreement {
  LaunchInfo launch = {};
  shm::Descriptor listener = {};  ///< of rank 0 when there is a store; `launch` has its number
};

/// Agrees on a job by one call of the program's own allgather: rank 0 draws the job's id and a
/// secret, and opens a port for the store. When all ranks are on one machine, and none asks for
/// fake nodes, the job is local, and no rank uses the port.
///
/// A rank that cannot take part says why in the exchange, and all ranks throw
/// Error(rendezvous_failed) with that text: none is left waiting.
[[nodiscard]] Agreement agree_on_job(int rank, int size, const Allgather& allgather,
                                     const WorldOptions& options);

}  // namespace rondo::transport::bootstrap

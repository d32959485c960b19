#pragma once

#include <cstdint>
#include <string>

#include "shm/layout.hpp"

namespace rondo::transport {

class WorldCore;

/// "allreduce #12 of 1024 f32 (sum)"; `number` counts the communicator's operations from 1.
[[nodiscard]] std::string describe(const shm::Fingerprint& fingerprint, std::uint64_t number);

/// "rank 3 (pid 4711 on node17)".
[[nodiscard]] std::string name_rank(const WorldCore& world, int rank);

}  // namespace rondo::transport

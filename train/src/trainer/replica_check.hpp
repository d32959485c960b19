#pragma once

#include <cstdint>

#include "trainer/parameter_hash.hpp"

namespace rondo::transport {
class World;
}

namespace rondo::train {

/// Compares `mine`, the hash of what all ranks must hold in equal bits, over the ranks; throws
/// NumericError that names the ranks that differ from rank 0, on every rank. Collective.
void check_replicas(transport::World& world, const ParameterHash& mine, std::int64_t epoch);

}  // namespace rondo::train

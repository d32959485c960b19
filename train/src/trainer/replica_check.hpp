#pragma once

#include <cstdint>

#include "trainer/parameter_hash.hpp"

namespace rondo::transport {
class Communicator;
}

namespace rondo::train {

/// Compares `mine`, the hash of what all of `replicas` must hold in equal bits; throws NumericError
/// on every rank that names those that differ from the first one. This one's name is `rank`.
/// Collective.
void check_replicas(transport::Communicator& replicas, int rank, const ParameterHash& mine,
                    std::int64_t epoch);

}  // namespace rondo::train

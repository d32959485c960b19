#pragma once

#include <cstdint>

#include <rondo/train/partition.hpp>

#include "trainer/parameter_hash.hpp"

namespace rondo::transport {
class Communicator;
}

namespace rondo::train {

/// Compares the hashes of what ranks in one position of the grid's groups must hold in equal bits:
/// `mine` is this rank's. Throws NumericError on every rank of the grid, also where only ranks of
/// another position differ; it names those that differ from the first one of their position.
/// Collective over `all`, the ranks of the grid.
void check_replicas(transport::Communicator& all, ProcessGrid grid, const ParameterHash& mine,
                    std::int64_t epoch);

}  // namespace rondo::train

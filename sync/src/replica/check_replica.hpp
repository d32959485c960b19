#pragma once

#include <rondo/sync/replica.hpp>

namespace rondo::sync {

/// Throws std::invalid_argument, naming the layer, unless arrays, layers and groups fit together
/// as Replica says.
void check_replica(const Replica& replica);

}  // namespace rondo::sync

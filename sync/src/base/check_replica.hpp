#pragma once

#include <memory>
#include <span>
#include <string_view>

#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/replica.hpp>

namespace rondo::sync {

/// Throws std::invalid_argument, naming the layer, unless arrays, layers and groups fit together
/// as Replica says.
void check_replica(const Replica& replica);

/// Gives `replica` after check_replica().
[[nodiscard]] const Replica& checked_replica(const Replica& replica);

/// Gives `optimizer`. Throws std::invalid_argument, naming `scheme`, if it is null or for another
/// number of parameters.
[[nodiscard]] std::shared_ptr<Optimizer> checked_optimizer(std::string_view scheme,
                                                           const Replica& replica,
                                                           std::shared_ptr<Optimizer> optimizer);

/// Throws std::invalid_argument, naming `scheme`, unless the arrays are as long as the replica's.
void expect_copy_of(const Replica& replica, std::string_view scheme,
                    std::span<const float> parameters, std::span<const float> statistics);

}  // namespace rondo::sync

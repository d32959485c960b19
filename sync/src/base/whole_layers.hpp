#pragma once

#include <span>
#include <string_view>

#include <rondo/sync/replica.hpp>

namespace rondo::sync {

/// Throws std::invalid_argument, beginning with `who` and naming the layer, unless each of
/// `layers`, some of `replica`, is whole on every rank and reduced over all of them: for what is
/// computed from a reduced gradient and must come out alike everywhere.
void expect_whole_layers(std::string_view who, const Replica& replica,
                         std::span<const Layer> layers);

}  // namespace rondo::sync

#pragma once

#include <string_view>

#include <rondo/sync/replica.hpp>

namespace rondo::sync {

/// The one `outer` group of all layers, for schemes that treat a replica as a whole. Throws
/// std::invalid_argument, naming `scheme` and the layer, where layers differ.
[[nodiscard]] transport::Communicator& common_outer(std::string_view scheme,
                                                    const Replica& replica);

/// Throws std::invalid_argument where a layer has an `inner` group, for schemes whose replicas are
/// single ranks.
void expect_no_inner(std::string_view scheme, const Replica& replica);

}  // namespace rondo::sync

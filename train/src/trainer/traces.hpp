#pragma once

#include <vector>

#include <rondo/sync/cyclic.hpp>
#include <rondo/sync/k_step.hpp>
#include <rondo/sync/lazy.hpp>

namespace rondo::transport {
class World;
}

namespace rondo::train {

/// What this rank's scheme has told of its decisions, until it is written down.
struct Traces {
  std::vector<sync::LazyWindow> windows = {};
  std::vector<sync::Round> rounds = {};
  std::vector<sync::Push> pushes = {};
};

/// Every rank's pushes on rank 0, in the order of the store's versions, and of ranks where those
/// are equal; on other ranks nothing. Collective.
[[nodiscard]] std::vector<sync::Push> gather_pushes(transport::World& world,
                                                    const std::vector<sync::Push>& mine);

}  // namespace rondo::train

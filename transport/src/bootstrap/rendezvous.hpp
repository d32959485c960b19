#pragma once

#include <memory>
#include <vector>

#include <rondo/transport/world.hpp>

namespace rondo::transport {
class WorldCore;
}

/// How the ranks of a job find each other.
namespace rondo::transport::rendezvous {

/// Joins the job that the environment tells of, or makes a World of one rank.
[[nodiscard]] std::shared_ptr<WorldCore> attach(const WorldOptions& options);

/// Ranks that are threads of this process; they share their mappings.
[[nodiscard]] std::vector<std::shared_ptr<WorldCore>> make_threads(int ranks,
                                                                   const WorldOptions& options);

}  // namespace rondo::transport::rendezvous

#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/transport/world.hpp>

#include "bootstrap/environment.hpp"
#include "bootstrap/side_channel.hpp"

namespace rondo::transport {
class WorldCore;
}

/// How the ranks of a job find each other.
namespace rondo::transport::bootstrap {

/// Joins the job that the environment tells of, or makes a World of one rank.
[[nodiscard]] std::shared_ptr<WorldCore> attach(const WorldOptions& options);

/// Joins the ranks that `allgather` joins; see World::create().
[[nodiscard]] std::shared_ptr<WorldCore> create(int rank, int size, const Allgather& allgather,
                                                const WorldOptions& options);

/// Ranks that are threads of this process; they share their mappings.
[[nodiscard]] std::vector<std::shared_ptr<WorldCore>> make_threads(int ranks,
                                                                   const WorldOptions& options);

/// A rank's line to the others, once all ranks have joined the store.
struct JoinedStore {
  std::unique_ptr<SideChannel> channel = {};
  std::string interface = {};  ///< by which the store was reached
};

/// Joins the store of a job that has a coordinator (LaunchInfo::coordinator).
///
/// Rank 0 serves the store on the inherited listener, or makes one; the others join it. The secret
/// comes from where read_secret() finds it; without one no rank listens or connects beyond
/// loopback, and both must be the same user's. `interfaces` is a pattern as of select_interfaces(),
/// or empty. Collective: it ends when every rank has come. Throws Error(bootstrap_failed) that
/// says who did not, or what is wrong here.
[[nodiscard]] JoinedStore join_store(const LaunchInfo& launch, std::string_view interfaces,
                                     std::chrono::milliseconds deadline);

}  // namespace rondo::transport::bootstrap

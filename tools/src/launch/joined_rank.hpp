#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include <rondo/transport/team.hpp>
#include <rondo/transport/world.hpp>

#include "machine.hpp"

namespace rondo::tools {

/// A rank that has joined its World, with the threads that it may use.
struct JoinedRank {
  std::unique_ptr<transport::Team> team;  ///< before the World, which borrows it
  transport::World world;
  int threads = 1;
};

/// Joins the World that this process was started for. Collective.
///
/// `rondo run` has chosen cores and threads already. Under another launcher the ranks of a host
/// compare where they may run: cores that the launcher gave to one rank alone stay so; a set that
/// all ranks of the host share is divided among them as `rondo run` does. Each rank then says on
/// stderr where it runs. `request.ranks` is not used. Throws UsageError for more threads than
/// cores, unless `request.oversubscribe`. From then on rank 0 says what all ranks have in common.
[[nodiscard]] JoinedRank join_as_rank(transport::WorldOptions options, PlacementRequest request);

/// Where a rank may run: a bit for each CPU.
using CpuSet = std::array<std::int64_t, 16>;

/// How the ranks of one host share its CPUs.
enum class Sharing { apart, all_alike, overlapping };

/// `sets` are those of one host's ranks; one rank is apart.
[[nodiscard]] Sharing sharing_of(std::span<const CpuSet> sets);

}  // namespace rondo::tools

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "message/link.hpp"

namespace rondo::transport::bootstrap {

/// Whom a rank exchanges messages with to find out whether a link works.
struct Neighbours {
  int next = 0;                    ///< a rank of the next node
  std::vector<int> previous = {};  ///< ranks of the previous node whose `next` is this one
  bool is_leader = false;          ///< the first rank of its node
  int leader_of_previous = 0;

  bool operator==(const Neighbours&) const = default;
};

/// The neighbours of `rank`, when rank r is on node `nodes[r]` of several: the nodes form a ring,
/// and rank i of a node sends to rank i of the next, counted around where that has fewer.
[[nodiscard]] Neighbours neighbours_of(int rank, const std::vector<int>& nodes);

/// The result of the probe on one rank.
struct ProbeResult {
  std::string problem = {};       ///< why the link is no good; empty when it is
  std::uint64_t nanoseconds = 0;  ///< for `probe_bytes` to the next node; 0: not measured

  bool silent = false;  ///< nothing has failed, and the first messages have not come

  static auto fields(auto& result) {
    return std::tie(result.problem, result.nanoseconds, result.silent);
  }
};

/// Finds in all ranks' results the first rank on which something has failed, else the first to
/// which nothing has come, which does not know why; the number of ranks when there is no problem.
[[nodiscard]] std::size_t first_cause(const std::vector<ProbeResult>& results);

/// Do the results tell of silence alone? Then another library cannot do better. Where something has
/// failed on a rank, its neighbours are silent, too, which says nothing of the wire.
[[nodiscard]] bool carries_nothing(const std::vector<ProbeResult>& results);

/// The size of a message that measures the speed.
inline constexpr std::size_t probe_bytes = std::size_t{512} << 10U;

/// Sends a message of 32 KiB to the next node, and receives those of the previous one; all are
/// answered. If `measures`, the leaders send `probe_bytes` after that, five times, and the
/// shortest time counts.
///
/// Collective, but waits for `limit` at most, and ends when `failure` tells of one: a rank that has
/// ended does not answer. Nothing refers to memory of it any more afterwards; a
/// link with a problem must not be used.
[[nodiscard]] ProbeResult probe(Link& link, const Neighbours& neighbours, bool measures,
                                std::chrono::milliseconds limit,
                                const std::function<std::string()>& failure);

}  // namespace rondo::transport::bootstrap

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <rondo/train/experiment.hpp>
#include <rondo/transport/world.hpp>

namespace rondo::train {

/// Ranks that average among themselves: a level of hierarchical averaging.
struct RankGroups {
  std::int64_t period = 1;
  std::vector<int> group_of = {};  ///< by rank
};

/// The levels that [update] describes, from the fastest on. Throws ConfigError when the groups of
/// one do not lie within those of the next.
[[nodiscard]] std::vector<RankGroups> rank_groups(const Experiment& experiment,
                                                  std::span<const transport::RankInfo> ranks);

}  // namespace rondo::train

#pragma once

#include <cstddef>
#include <cstdint>

#include "collective/operation.hpp"
#include "node/slices.hpp"
#include "reduce/reduce.hpp"

namespace rondo::transport {

/// Reduce-scatter and alltoall of inputs of which at least one is in ordinary memory: every rank
/// has something else for every other.
///
/// A staging buffer is cut into one lane per rank that receives anything. Round by round, fill the
/// peers' lanes of the own buffer with as much of their columns of the input as fits; then take
/// the own lanes of all buffers: reduce them in rank order, or copy them out.
///
/// Loads P-1 times its own share; stores nothing into peers.
class StagedExchange final : public Operation {
 public:
  StagedExchange(Group& group, const Posted& posted);
  Progress step(Group& group, const Posted& posted) override;
  [[nodiscard]] bool waits_for(const Group& group, std::size_t member) const override;

 private:
  void cut_lanes(const Group& group, const Posted& posted);
  [[nodiscard]] std::byte* lane_of(const Group& group, std::size_t giver, std::size_t lane,
                                   std::uint64_t round) const noexcept;
  [[nodiscard]] Range window(std::uint64_t round, std::size_t share) const noexcept;
  void fill(Group& group, const Posted& posted);
  void take(Group& group, const Posted& posted);
  void reduce_lanes(Group& group, const Posted& posted, Range bytes);
  void copy_lanes(Group& group, const Posted& posted, Range bytes);

  Reduction reduce_;
  bool reduces_;
  bool packs_own_;  // the own columns are not dense, so they take a lane, too
  std::size_t lane_bytes_ = 0;
  std::size_t own_lane_ = 0;
  std::size_t own_bytes_ = 0;  // of this rank's share
  std::uint64_t first_;        // round
  std::uint64_t end_;
  std::uint64_t filled_;
  std::uint64_t taken_;
};

}  // namespace rondo::transport

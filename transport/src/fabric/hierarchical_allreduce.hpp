#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <variant>

#include <rondo/transport/request.hpp>

#include "collective/operation.hpp"
#include "fabric/doubling_allreduce.hpp"
#include "fabric/hierarchy_plan.hpp"
#include "fabric/ring_allreduce.hpp"

namespace rondo::transport {

class LinkFailure;

/// Allreduce of a group with several ranks on some node (see collective/levels.hpp).
///
/// Block by block: reduce_scatter on each node, so that its i-th rank holds shard i; allreduce of
/// each shard among its holders, over links, all shards at once; allgather on each node. Up to two
/// blocks are under way, so that what one does on the node overlaps what the other does between
/// nodes. What the group's table calls short is one shard, so that one rank of each node talks.
///
/// Between N nodes a rank with a shard of n bytes sends 2 (N-1)/N n. The order of summation is
/// fixed, and all ranks get the same bits.
class HierarchicalAllreduce final : public Operation {
 public:
  HierarchicalAllreduce(Group& group, const Posted& posted);
  Progress step(Group& group, const Posted& posted) override;
  [[nodiscard]] bool waits_for(const Group& group, std::size_t member) const override;

 private:
  static constexpr std::size_t blocks_under_way = 2;

  bool scatter(Group& group, const Posted& posted);
  bool exchange(Group& group);
  bool gather(Group& group, const Posted& posted);
  void post_scatter(Group& group, const Posted& posted);
  void post_gather(Group& group, const Posted& posted);
  void begin_exchange(Group& group, const Posted& posted);
  void count_shares(Group& group, std::size_t block) const;
  [[nodiscard]] Operation* exchanging();

  HierarchyPlan plan_;
  std::size_t element_bytes_;
  std::size_t place_;  // on the node
  bool holds_;         // a shard
  // Blocks below these: scattering, scattered; exchanged between nodes; gathering, gathered.
  std::size_t scatters_posted_ = 0;
  std::size_t scattered_ = 0;
  std::size_t exchanged_ = 0;
  std::size_t gathers_posted_ = 0;
  std::size_t gathered_ = 0;
  std::array<Request, blocks_under_way> scatters_;
  std::array<Request, blocks_under_way> gathers_;
  Posted exchange_;
  std::variant<std::monostate, RingAllreduce, DoublingAllreduce> exchanging_;
};

}  // namespace rondo::transport

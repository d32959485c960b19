// Hierarchical allreduce, reduce, broadcast and barrier: all ranks have all of the data, which is
// cut into blocks and shards (see HierarchyPlan).
//
//              on each node      among the owners of a shard     on each node
//   allreduce  reduce_scatter    allreduce                       allgather
//   reduce     reduce_scatter    reduce to the root's node       gather; root's node only
//   broadcast  broadcast; root's broadcast from the root's node  allgather; other nodes
//              node only
//   barrier    barrier           barrier of the leaders          barrier
//
// Owners exchange by the algorithm that the table has for all of the data, not for their shards:
// the owners of a node share its port, so what it sends is long when the data is.
//
// Between N nodes and with q shards an owner sends 2 (N-1)/N n/q bytes for an allreduce, at most
// n/q for a reduce, and n/q to each child for a broadcast. Flat algorithms are never better where
// nodes have several ranks: a tree over all ranks sends all n bytes from one rank of a node, and
// crosses the network once per rank in the worst order of ranks.
//
// Short data is one shard. Its owner is the root itself if every node has a rank of the root's
// index on its node; then the root's node copies nothing.
//
// Sums: first over the ranks of each node in their order; then over the nodes, in the order of the
// algorithm between them. So the order is fixed, and all ranks get the same bits.

#include <cstddef>
#include <span>

#include "collective/algorithms.hpp"
#include "collective/hierarchical/hierarchical.hpp"
#include "reduce/reduce.hpp"

namespace rondo::transport {
namespace {

using shm::Collective;

// The rank on each node that owns data of one shard.
std::size_t lead_for(const Hierarchy& levels, const Posted& posted) noexcept {
  if (posted.fingerprint.root < 0) return 0;
  const auto root = static_cast<std::size_t>(posted.fingerprint.root);
  const std::size_t rank = levels.place_of(root).rank;
  return rank < levels.shards ? rank : 0;
}

HierarchyPlan plan_for(const Group& group, const Posted& posted, std::size_t lead) noexcept {
  const std::size_t bytes = posted.input.bytes();
  const bool whole = is_short(group, posted.fingerprint.collective, bytes);
  return {bytes, whole ? 1 : group.levels->shards, group.levels->nodes.size(), lead};
}

// Elements of a block that each rank of this node owns.
std::span<const std::size_t> shares_of(Hierarchy& levels, const HierarchyPlan& plan,
                                       std::size_t block, std::size_t element_bytes) {
  levels.shares.resize(levels.members_here().size());
  for (std::size_t r = 0; r < levels.shares.size(); ++r) {
    levels.shares[r] = plan.shard(block, r).size() / element_bytes;
  }
  return levels.shares;
}

// The node's ranks reduce a block: every owner gets its shard.
Request reduce_on_node(const Group& group, const Posted& posted, const HierarchyPlan& plan,
                       std::size_t block, const Block& shard) {
  NodeCommunicator& node = *group.levels->node_scatter;
  return node.post(node.prepare_reduce_scatter(
      part_of(posted.input, plan.block(block)), shard, partial_op(posted.fingerprint.op),
      shares_of(*group.levels, plan, block, size_of(posted.fingerprint.type))));
}

// The exchange is an allreduce of its own, in place, among the owners of the shard. The rank sends
// its shard from the output, and receives the others around it; only when all of its node have
// reduced the block, because they read the input, which may be the same memory.
class HierarchicalAllreduce final : public HierarchicalOperation {
 public:
  HierarchicalAllreduce(Group& group, const Posted& posted)
      : HierarchicalOperation(group),
        plan_(plan_for(group, posted, 0)),
        element_bytes_(size_of(posted.fingerprint.type)) {
    shape.blocks = plan_.blocks();
    const AllreduceAlgorithm algorithm = group.allreduce_table.pick(posted.input.bytes());
    for (Hierarchy::Exchange& exchange : group.levels->exchanges) {
      exchange.group.allreduce_table = AlgorithmTable::only(algorithm);
    }
  }

 private:
  Request post_before(Group& group, const Posted& posted, std::size_t block,
                      std::size_t part) override;
  bool describe_exchange(Group& group, const Posted& posted, std::size_t block,
                         Posted& exchange) override;
  Request post_after(Group& group, const Posted& posted, std::size_t block,
                     std::size_t part) override;
  [[nodiscard]] Block shard(const Group& group, const Posted& posted, std::size_t block) const {
    return part_of(posted.output, plan_.shard(block, group.levels->node_rank));
  }

  HierarchyPlan plan_;
  std::size_t element_bytes_;
};

Request HierarchicalAllreduce::post_before(Group& group, const Posted& posted, std::size_t block,
                                           std::size_t /*part*/) {
  return reduce_on_node(group, posted, plan_, block, shard(group, posted, block));
}

bool HierarchicalAllreduce::describe_exchange(Group& group, const Posted& posted, std::size_t block,
                                              Posted& exchange) {
  exchange.output = shard(group, posted, block);
  exchange.input = as_const_block(exchange.output);
  exchange.fingerprint.count = exchange.output.bytes() / element_bytes_;
  return exchange.output.bytes() > 0;
}

Request HierarchicalAllreduce::post_after(Group& group, const Posted& posted, std::size_t block,
                                          std::size_t /*part*/) {
  NodeCommunicator& node = *group.levels->node_gather;
  return node.post(node.prepare_allgather(as_const_block(shard(group, posted, block)),
                                          part_of(posted.output, plan_.block(block)),
                                          shares_of(*group.levels, plan_, block, element_bytes_)));
}

// Sums of shards lie in scratch, at the root in its output. The owners of the root's node get the
// sums over all nodes in place, and the root gathers them.
class HierarchicalReduce final : public HierarchicalOperation {
 public:
  HierarchicalReduce(Group& group, const Posted& posted);

 private:
  Request post_before(Group& group, const Posted& posted, std::size_t block,
                      std::size_t part) override;
  bool describe_exchange(Group& group, const Posted& posted, std::size_t block,
                         Posted& exchange) override;
  Request post_after(Group& group, const Posted& posted, std::size_t block,
                     std::size_t part) override;
  [[nodiscard]] Block shard(const Group& group, const Posted& posted, std::size_t block) const;

  Hierarchy::Place root_;
  HierarchyPlan plan_;
  std::size_t element_bytes_;
  std::span<std::byte> scratch_;
};

HierarchicalReduce::HierarchicalReduce(Group& group, const Posted& posted)
    : HierarchicalOperation(group),
      root_(group.levels->place_of(static_cast<std::size_t>(posted.fingerprint.root))),
      plan_(plan_for(group, posted, lead_for(*group.levels, posted))),
      element_bytes_(size_of(posted.fingerprint.type)) {
  const Hierarchy& levels = *group.levels;
  const bool root_owns_all = plan_.shards() == 1 && plan_.lead() == root_.rank;
  shape.blocks = plan_.blocks();
  shape.after = levels.node == root_.node && !root_owns_all ? 1 : 0;
  if (shape.blocks > 0 && !posted.is_root(group.index())) {
    const std::size_t slots = std::min(shape.blocks, shape.under_way);
    scratch_ = group.levels->scratch.take(slots * plan_.shard(0, levels.node_rank).size());
  }
}

// No later block is longer than the first.
Block HierarchicalReduce::shard(const Group& group, const Posted& posted, std::size_t block) const {
  const Range range = plan_.shard(block, group.levels->node_rank);
  if (posted.is_root(group.index())) return part_of(posted.output, range);
  const std::size_t slot = plan_.shard(0, group.levels->node_rank).size();
  return row_of(scratch_.data() + block % shape.under_way * slot, posted.fingerprint.type,
                range.size());
}

Request HierarchicalReduce::post_before(Group& group, const Posted& posted, std::size_t block,
                                        std::size_t /*part*/) {
  return reduce_on_node(group, posted, plan_, block, shard(group, posted, block));
}

bool HierarchicalReduce::describe_exchange(Group& group, const Posted& posted, std::size_t block,
                                           Posted& exchange) {
  exchange.fingerprint.root = static_cast<std::int32_t>(root_.node);
  exchange.output = shard(group, posted, block);
  exchange.input = as_const_block(exchange.output);
  return exchange.output.bytes() > 0;
}

Request HierarchicalReduce::post_after(Group& group, const Posted& posted, std::size_t block,
                                       std::size_t /*part*/) {
  NodeCommunicator& node = *group.levels->node_gather;
  const Block all =
      posted.is_root(group.index()) ? part_of(posted.output, plan_.block(block)) : Block{};
  return node.post(node.prepare_gather(as_const_block(shard(group, posted, block)), all,
                                       static_cast<int>(root_.rank),
                                       shares_of(*group.levels, plan_, block, element_bytes_)));
}

// The root's node broadcasts a block inside, so that its owners have their shards. The root need
// not wait for that to send its own.
class HierarchicalBroadcast final : public HierarchicalOperation {
 public:
  HierarchicalBroadcast(Group& group, const Posted& posted)
      : HierarchicalOperation(group),
        root_(group.levels->place_of(static_cast<std::size_t>(posted.fingerprint.root))),
        plan_(plan_for(group, posted, lead_for(*group.levels, posted))) {
    const bool at_root = group.levels->node == root_.node;
    shape.blocks = plan_.blocks();
    shape.before = at_root ? 1 : 0;
    shape.after = at_root ? 0 : 1;
    shape.exchanges_early = posted.is_root(group.index());
  }

 private:
  Request post_before(Group& group, const Posted& posted, std::size_t block,
                      std::size_t /*part*/) override {
    NodeCommunicator& node = *group.levels->node_scatter;
    return node.post(node.prepare_broadcast(part_of(posted.output, plan_.block(block)),
                                            static_cast<int>(root_.rank)));
  }
  bool describe_exchange(Group& group, const Posted& posted, std::size_t block,
                         Posted& exchange) override {
    exchange.fingerprint.root = static_cast<std::int32_t>(root_.node);
    exchange.output = part_of(posted.output, plan_.shard(block, group.levels->node_rank));
    exchange.input = as_const_block(exchange.output);
    return exchange.output.bytes() > 0;
  }
  Request post_after(Group& group, const Posted& posted, std::size_t block,
                     std::size_t part) override;

  Hierarchy::Place root_;
  HierarchyPlan plan_;
};

Request HierarchicalBroadcast::post_after(Group& group, const Posted& posted, std::size_t block,
                                          std::size_t /*part*/) {
  NodeCommunicator& node = *group.levels->node_gather;
  const Block whole = part_of(posted.output, plan_.block(block));
  if (plan_.shards() == 1) {
    return node.post(node.prepare_broadcast(whole, static_cast<int>(plan_.lead())));
  }
  const Block own = part_of(posted.output, plan_.shard(block, group.levels->node_rank));
  return node.post(node.prepare_allgather(
      as_const_block(own), whole,
      shares_of(*group.levels, plan_, block, size_of(posted.fingerprint.type))));
}

class HierarchicalBarrier final : public HierarchicalOperation {
 public:
  HierarchicalBarrier(Group& group, const Posted& /*posted*/) : HierarchicalOperation(group) {}

 private:
  Request post_before(Group& group, const Posted& /*posted*/, std::size_t /*block*/,
                      std::size_t /*part*/) override {
    return group.levels->node_scatter->post(group.levels->node_scatter->prepare_barrier());
  }
  bool describe_exchange(Group& group, const Posted& /*posted*/, std::size_t /*block*/,
                         Posted& exchange) override {
    exchange.input = {};
    exchange.output = {};
    return group.levels->node_rank == 0;
  }
  Request post_after(Group& group, const Posted& /*posted*/, std::size_t /*block*/,
                     std::size_t /*part*/) override {
    return group.levels->node_gather->post(group.levels->node_gather->prepare_barrier());
  }
};

template <Collective collective>
bool suits_whole(const Group& group, const Posted& posted) {
  return posted.fingerprint.collective == collective &&
         is_hierarchical(group, posted.input.bytes());
}

}  // namespace

constexpr Algorithm algorithms::hierarchical_allreduce =
    algorithm_of<HierarchicalAllreduce>(Protocol::links, &suits_whole<Collective::allreduce>);

constexpr Algorithm algorithms::hierarchical_reduce =
    algorithm_of<HierarchicalReduce>(Protocol::links, &suits_whole<Collective::reduce>);

constexpr Algorithm algorithms::hierarchical_broadcast =
    algorithm_of<HierarchicalBroadcast>(Protocol::links, &suits_whole<Collective::broadcast>);

constexpr Algorithm algorithms::hierarchical_barrier =
    algorithm_of<HierarchicalBarrier>(Protocol::links, &suits_whole<Collective::barrier>);

}  // namespace rondo::transport

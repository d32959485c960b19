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

namespace rondo::transport {
namespace {

using shm::Collective;

// The common base of all but the barrier.
class HierarchicalWhole : public HierarchicalOperation {
 protected:
  HierarchicalWhole(Group& group, const Posted& posted)
      : HierarchicalOperation(group, posted),
        root_(posted.fingerprint.root < 0
                  ? Hierarchy::Place{}
                  : levels_.place_of(static_cast<std::size_t>(posted.fingerprint.root))),
        plan_(posted.input.bytes(), shards_for(group, posted), levels_.nodes.size(),
              root_.rank < levels_.shards ? root_.rank : 0) {
    shape.blocks = plan_.blocks();
  }

  [[nodiscard]] Range own_shard(std::size_t block) const noexcept {
    return plan_.shard(block, levels_.node_rank);
  }
  // The node's ranks reduce a block: every owner gets its shard.
  void reduce_on_node(std::size_t block, const Block& shard, Posted& on_node) const {
    on_node.fingerprint.collective = Collective::reduce_scatter;
    on_node.input = part_of(posted_.input, plan_.block(block));
    on_node.output = shard;
    add_shards(block, on_node);
  }
  // Each gets the shards of all.
  void gather_on_node(std::size_t block, Posted& on_node) const {
    on_node.fingerprint.collective = Collective::allgather;
    on_node.input = as_const_block(part_of(posted_.output, own_shard(block)));
    on_node.output = part_of(posted_.output, plan_.block(block));
    add_shards(block, on_node);
  }
  void broadcast_on_node(std::size_t block, std::size_t root, Posted& on_node) const {
    on_node.fingerprint.collective = Collective::broadcast;
    on_node.fingerprint.root = static_cast<std::int32_t>(root);
    on_node.output = part_of(posted_.output, plan_.block(block));
    on_node.input = as_const_block(on_node.output);
  }
  // In place, towards the root's node or from it. False when there is nothing.
  bool exchange_in_place(const Block& shard, Posted& exchange) const {
    if (posted_.fingerprint.root >= 0) {
      exchange.fingerprint.root = static_cast<std::int32_t>(root_.node);
    }
    exchange.output = shard;
    exchange.input = as_const_block(shard);
    return shard.bytes() > 0;
  }

  Hierarchy::Place root_;
  HierarchyPlan plan_;

 private:
  [[nodiscard]] static std::size_t shards_for(const Group& group, const Posted& posted) noexcept {
    const bool whole = is_short(group, posted.fingerprint.collective, posted.input.bytes());
    return whole ? 1 : group.levels->shards;
  }
  void add_shards(std::size_t block, Posted& on_node) const {
    for (std::size_t r = 0; r < levels_.members_here().size(); ++r) {
      on_node.row_bytes_of.push_back(plan_.shard(block, r).size());
    }
  }
};

// The exchange is an allreduce of its own, in place, among the owners of the shard. The rank sends
// its shard from the output, and receives the others around it; only when all of its node have
// reduced the block, because they read the input, which may be the same memory.
class HierarchicalAllreduce final : public HierarchicalWhole {
 public:
  HierarchicalAllreduce(Group& group, const Posted& posted) : HierarchicalWhole(group, posted) {
    const AllreduceAlgorithm algorithm = group.allreduce_table.pick(posted.input.bytes());
    for (Hierarchy::Exchange& exchange : levels_.exchanges) {
      exchange.group.allreduce_table = AlgorithmTable::only(algorithm);
    }
  }

 private:
  void describe_before(std::size_t block, std::size_t /*part*/, Posted& on_node) override {
    reduce_on_node(block, part_of(posted_.output, own_shard(block)), on_node);
  }
  bool describe_exchange(std::size_t block, Posted& exchange) override {
    return exchange_in_place(part_of(posted_.output, own_shard(block)), exchange);
  }
  void describe_after(std::size_t block, std::size_t /*part*/, Posted& on_node) override {
    gather_on_node(block, on_node);
  }
};

// Sums of shards lie in scratch, at the root in its output. The owners of the root's node get the
// sums over all nodes in place, and the root gathers them.
class HierarchicalReduce final : public HierarchicalWhole {
 public:
  HierarchicalReduce(Group& group, const Posted& posted);

 private:
  void describe_before(std::size_t block, std::size_t /*part*/, Posted& on_node) override {
    reduce_on_node(block, shard(block), on_node);
  }
  bool describe_exchange(std::size_t block, Posted& exchange) override {
    return exchange_in_place(shard(block), exchange);
  }
  void describe_after(std::size_t block, std::size_t part, Posted& on_node) override;
  [[nodiscard]] Block shard(std::size_t block) const;

  std::span<std::byte> scratch_;
};

HierarchicalReduce::HierarchicalReduce(Group& group, const Posted& posted)
    : HierarchicalWhole(group, posted) {
  const bool root_owns_all = plan_.shards() == 1 && plan_.lead() == root_.rank;
  shape.after = levels_.node == root_.node && !root_owns_all ? 1 : 0;
  if (shape.blocks > 0 && !posted.is_root(group.index())) {
    const std::size_t slots = std::min(shape.blocks, shape.under_way);
    scratch_ = levels_.scratch.take(slots * own_shard(0).size());
  }
}

// No later block is longer than the first.
Block HierarchicalReduce::shard(std::size_t block) const {
  const Range range = own_shard(block);
  if (posted_.is_root(group_.index())) return part_of(posted_.output, range);
  return row_of(scratch_.data() + block % shape.under_way * own_shard(0).size(),
                posted_.fingerprint.type, range.size());
}

void HierarchicalReduce::describe_after(std::size_t block, std::size_t /*part*/, Posted& on_node) {
  on_node.fingerprint.collective = Collective::gather;
  on_node.fingerprint.root = static_cast<std::int32_t>(root_.rank);
  on_node.input = as_const_block(shard(block));
  if (!posted_.is_root(group_.index())) return;
  on_node.output = part_of(posted_.output, plan_.block(block));
  on_node.received_at.push_back(0);
  for (std::size_t r = 0; r < levels_.members_here().size(); ++r) {
    on_node.received_at.push_back(on_node.received_at.back() + plan_.shard(block, r).size());
  }
}

// The root's node broadcasts a block inside, so that its owners have their shards. The root need
// not wait for that to send its own.
class HierarchicalBroadcast final : public HierarchicalWhole {
 public:
  HierarchicalBroadcast(Group& group, const Posted& posted) : HierarchicalWhole(group, posted) {
    const bool at_root = levels_.node == root_.node;
    shape.before = at_root ? 1 : 0;
    shape.after = at_root ? 0 : 1;
    shape.exchanges_early = posted.is_root(group.index());
  }

 private:
  void describe_before(std::size_t block, std::size_t /*part*/, Posted& on_node) override {
    broadcast_on_node(block, root_.rank, on_node);
  }
  bool describe_exchange(std::size_t block, Posted& exchange) override {
    return exchange_in_place(part_of(posted_.output, own_shard(block)), exchange);
  }
  void describe_after(std::size_t block, std::size_t /*part*/, Posted& on_node) override {
    if (plan_.shards() == 1) return broadcast_on_node(block, plan_.lead(), on_node);
    gather_on_node(block, on_node);
  }
};

class HierarchicalBarrier final : public HierarchicalOperation {
 public:
  HierarchicalBarrier(Group& group, const Posted& posted) : HierarchicalOperation(group, posted) {}

 private:
  void describe_before(std::size_t /*block*/, std::size_t /*part*/, Posted& /*on_node*/) override {}
  bool describe_exchange(std::size_t /*block*/, Posted& /*exchange*/) override {
    return levels_.node_rank == 0;
  }
  void describe_after(std::size_t /*block*/, std::size_t /*part*/, Posted& /*on_node*/) override {}
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

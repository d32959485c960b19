#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "base/cache_line.hpp"
#include "collective/algorithms.hpp"
#include "collective/blocks.hpp"
#include "message/channel.hpp"

namespace rondo::transport {

/// The operations that hierarchical ones run among the members on this node, one after the other:
/// all of these post the same in the same order.
class NodeOperations {
 public:
  /// So many may be under way.
  static constexpr std::size_t at_once = 4;

  /// Where the next one is to be described. It has its sequence.
  [[nodiscard]] virtual Posted& next() noexcept = 0;
  virtual void post() = 0;
  /// Does a bounded amount of work for those under way; true when it did any. Throws LinkFailure
  /// with the rank on the node.
  virtual bool step() = 0;
  [[nodiscard]] virtual std::size_t under_way() const noexcept = 0;
  [[nodiscard]] virtual bool waits_for(std::size_t node_rank) const = 0;
  /// Gives up the one that runs.
  virtual void clear() noexcept = 0;

 protected:
  ~NodeOperations() = default;
};

/// The two levels of a group whose ranks are on several nodes: the members on this node, and for
/// each shard of the data its owners, one per node.
///
/// There are as many shards as the node with the fewest members has members; on every node, the
/// i-th member (in the order of the group) owns shard i. The first of a node is its leader.
struct Hierarchy {
  NodeOperations* on_node = nullptr;

  /// The members of each node in their order, nodes in the order of their first members.
  std::vector<std::vector<std::size_t>> nodes = {};
  std::size_t node = 0;       ///< this rank's
  std::size_t node_rank = 0;  ///< which of its node's members this rank is
  std::size_t shards = 0;
  std::size_t most_members = 0;  ///< of one node
  bool shares_nodes = false;     ///< has some node several members?
  bool even = false;             ///< have all nodes as many?
  bool consecutive = false;      ///< are the members of each node consecutive ranks of the group?

  /// An operation among the owners of this rank's shard, in the order of the nodes. Several run at
  /// once, each on a channel of its own.
  struct Exchange {
    std::unique_ptr<Channel> channel = {};
    Group group = {};
    Posted posted = {};
    OperationStorage<std::size_t{4} << 10U> running = {};
  };
  static constexpr std::size_t exchanges_at_once = 3;
  std::deque<Exchange> exchanges = {};  ///< none when this rank owns no shard, or no node is shared

  /// Scratch of the hierarchical operation that runs.
  Scratch scratch = Scratch();
  std::vector<Range> node_ranges = {};

  /// Fills in everything that follows from the members of the nodes; `member` is this rank.
  void arrange(std::vector<std::vector<std::size_t>> members_of_nodes, std::size_t member);

  struct Place {
    std::size_t node = 0;
    std::size_t rank = 0;  ///< on that node
  };
  [[nodiscard]] Place place_of(std::size_t member) const noexcept;
  [[nodiscard]] const std::vector<std::size_t>& members_here() const noexcept {
    return nodes[node];
  }
};

/// How a hierarchical operation cuts data that is the same on all ranks: into blocks, and each
/// block into one shard per exchange between nodes. Blocks overlap: what one does on a node hides
/// behind what others do between nodes. The same on all ranks.
class HierarchyPlan {
 public:
  HierarchyPlan() = default;
  /// With one shard, `lead` is the rank on each node that owns it.
  constexpr HierarchyPlan(std::size_t bytes, std::size_t shards, std::size_t nodes,
                          std::size_t lead = 0) noexcept
      : bytes_(bytes), shards_(shards), lead_(lead), shard_bytes_(cut(bytes, shards, nodes)) {}

  /// Bytes of a whole shard: a quarter of what an owner has, so that receiving, reducing and
  /// sending of different blocks overlap. But not so short that the chunks of a ring become short
  /// (64 KiB), and not longer than fills the network. Halving takes the same blocks: it needs them
  /// as much, because only other blocks hide what it adds, and a block that is long enough for the
  /// 2 (N-1) messages of a ring is long for its 2 log2 N.
  [[nodiscard]] static constexpr std::size_t cut(std::size_t bytes, std::size_t shards,
                                                 std::size_t nodes) noexcept {
    const std::size_t quarter = (bytes + 4 * shards - 1) / (4 * shards);
    const std::size_t least = std::max(std::size_t{512} << 10U, nodes * (std::size_t{64} << 10U));
    const std::size_t most = std::max(std::size_t{4} << 20U, least);
    return round_up(std::clamp(quarter, least, most), cache_line_bytes);
  }

  [[nodiscard]] constexpr std::size_t shards() const noexcept { return shards_; }
  [[nodiscard]] constexpr std::size_t lead() const noexcept { return lead_; }
  [[nodiscard]] constexpr std::size_t blocks() const noexcept {
    return (bytes_ + block_bytes() - 1) / block_bytes();
  }
  [[nodiscard]] constexpr Range block(std::size_t index) const noexcept {
    const std::size_t begin = index * block_bytes();
    return {begin, std::min(bytes_, begin + block_bytes())};
  }
  /// Bytes of block `index` that the rank `rank` of each node owns.
  [[nodiscard]] constexpr Range shard(std::size_t index, std::size_t rank) const noexcept {
    const Range whole = block(index);
    if (shards_ == 1 && rank == lead_) return whole;
    if (shards_ == 1 || rank >= shards_) return {whole.end, whole.end};
    const Range part = slice(whole.size(), shards_, rank, cache_line_bytes);
    return {whole.begin + part.begin, whole.begin + part.end};
  }

 private:
  [[nodiscard]] constexpr std::size_t block_bytes() const noexcept {
    return shards_ * shard_bytes_;
  }

  std::size_t bytes_ = 0;
  std::size_t shards_ = 1;
  std::size_t lead_ = 0;
  std::size_t shard_bytes_ = cache_line_bytes;
};

/// How a hierarchical allgather or reduce_scatter cuts the shares of all ranks; the same on all.
///
/// The shares stand node by node, on each in the order of its members. A block has a range of every
/// node, in which stand the pieces of its members; a range is cut into runs, one for each shard.
/// In the caller's memory (in_place) a block takes equal parts of all nodes; else it is packed, and
/// takes equal parts of all shares.
class SharesCut {
 public:
  /// Both are lent.
  SharesCut(const Hierarchy& levels, const Posted& posted, bool single);

  [[nodiscard]] std::size_t blocks() const noexcept { return blocks_; }
  [[nodiscard]] bool in_place() const noexcept { return in_place_; }
  /// Are there one block and one shard, the leader's?
  [[nodiscard]] bool single() const noexcept { return single_; }
  /// Does every rank own its own piece?
  [[nodiscard]] bool runs_are_pieces() const noexcept { return runs_are_pieces_; }

  /// The bytes of the share of the rank at `place` that are in the block.
  [[nodiscard]] Range piece(const Hierarchy::Place& place, std::size_t block) const noexcept;
  /// The bytes of the pieces of all ranks of `node`, in one walk.
  void pieces_of(std::size_t node, std::size_t block, std::vector<std::size_t>& bytes) const;
  /// The range of each node.
  void lay_out(std::size_t block, std::vector<Range>& ranges) const;
  /// The part of the `range` of `node` that the rank `owner` of each node owns.
  [[nodiscard]] Range run(std::size_t block, std::size_t node, const Range& range,
                          std::size_t owner) const noexcept;

 private:
  [[nodiscard]] std::size_t share_bytes(const Hierarchy::Place& place) const noexcept {
    return posted_->share_row_bytes(levels_->nodes[place.node][place.rank]) * posted_->input.rows;
  }
  /// The part in the block of a share of which `before` bytes of the node stand before it.
  [[nodiscard]] Range part_in(std::size_t block, std::size_t before,
                              std::size_t share) const noexcept;

  const Hierarchy* levels_;
  const Posted* posted_;
  bool single_;
  bool in_place_;
  bool runs_are_pieces_ = false;
  std::size_t window_ = 0;  // bytes of each node (in place) or share
  std::size_t blocks_ = 0;
};

/// Adjacent bytes as a Block of one row.
[[nodiscard]] inline Block row_of(std::byte* data, ElementType type, std::size_t bytes) noexcept {
  return {data, type, 1, bytes, bytes};
}

/// Are `bytes` of a collective short by the group's table for allreduce? Short data is not cut,
/// because its bytes are few and each exchange costs messages: one rank of each node exchanges it.
/// An allreduce by halving is cut as one by rings: its time is that of its bytes, which several
/// ranks move, add and copy at once.
[[nodiscard]] inline bool is_short(const Group& group, shm::Collective collective,
                                   std::size_t bytes) noexcept {
  const AlgorithmTable& table = group.allreduce_table;
  return collective == shm::Collective::allreduce
             ? table.pick(bytes) == AllreduceAlgorithm::doubling
             : table.is_short(bytes);
}

/// Does some node have several of the group's members, and does the group's table not keep
/// collectives of so many bytes flat?
[[nodiscard]] inline bool is_hierarchical(const Group& group, std::size_t bytes) noexcept {
  return group.levels != nullptr && group.levels->shares_nodes &&
         !group.allreduce_table.is_flat(bytes);
}

/// The stages of a hierarchical operation, block by block: operations on the node (before), an
/// exchange among the owners of the shard, operations on the node (after). Derived classes say what
/// is posted in each; this class runs them, several blocks at once.
class HierarchicalOperation : public Operation {
 public:
  ~HierarchicalOperation() override;
  Progress step(Group& group, const Posted& posted) final;
  [[nodiscard]] bool waits_for(const Group& group, std::size_t member) const final;

 protected:
  struct Shape {
    std::size_t blocks = 1;
    std::size_t before = 1;  ///< operations on the node for each block; the same on its ranks
    std::size_t after = 1;
    std::size_t under_way = 5;     ///< blocks; as many need scratch
    bool exchanges_early = false;  ///< need not wait until `before` is complete
  };
  /// A derived class sets `shape` in its constructor. Both arguments outlive this.
  HierarchicalOperation(Group& group, const Posted& posted);

  // Each fills in an operation that has the sequence and the fingerprint of `posted`, without its
  // root and with the operator for partial results.

  /// Operation `part` of a block on the node.
  virtual void describe_before(std::size_t block, std::size_t part, Posted& on_node) = 0;
  /// The one that this rank, an owner, posts among the owners. False when there is nothing to
  /// exchange.
  virtual bool describe_exchange(std::size_t block, Posted& exchange) = 0;
  virtual void describe_after(std::size_t block, std::size_t part, Posted& on_node) = 0;
  /// The block's operations are over.
  virtual void finish(std::size_t /*block*/) {}

  Shape shape = {};
  Group& group_;
  const Posted& posted_;
  Hierarchy& levels_;

 private:
  /// How many operations on the node there have been of each stage.
  struct Place {
    std::size_t before = 0;
    std::size_t after = 0;
  };

  void clear_arguments(Posted& described) const;
  [[nodiscard]] bool next_is_before(const Place& place) const noexcept;
  bool post_on_node();
  bool run_on_node();
  bool run_exchanges();
  bool begin_exchange();
  bool finish_blocks();
  [[nodiscard]] std::size_t ready_to_exchange() const noexcept;

  Place posted_on_node_;
  Place ended_on_node_;
  // Blocks below these: exchange begun, exchanged, finished.
  std::size_t begun_ = 0;
  std::size_t exchanged_ = 0;
  std::size_t finished_ = 0;
  bool done_ = false;
};

}  // namespace rondo::transport

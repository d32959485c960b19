// Allreduce of a group with several ranks on some node (see Hierarchy).
//
// Block by block: reduce_scatter on each node, so that its i-th rank holds shard i; allreduce of
// each shard among its owners, over links, all shards at once; allgather on each node. Up to two
// blocks are under way, so that what one does on the node overlaps what the other does between
// nodes. What the group's table calls short is one shard, so that one rank of each node talks.
//
// Between N nodes a rank with a shard of n bytes sends 2 (N-1)/N n. The order of summation is
// fixed, and all ranks get the same bits.

#include "fabric/hierarchical.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#include <rondo/transport/request.hpp>

#include "collective/algorithms.hpp"
#include "core/channel.hpp"
#include "core/communicator_core.hpp"
#include "reduce/reduce.hpp"

namespace rondo::transport {
namespace {

class HierarchicalAllreduce final : public Operation {
 public:
  HierarchicalAllreduce(Group& group, const Posted& posted);
  Progress step(Group& group, const Posted& posted) override;
  [[nodiscard]] bool waits_for(const Group& group, std::size_t member) const override;

 private:
  static constexpr std::size_t blocks_under_way = 2;
  using Requests = std::array<Request, blocks_under_way>;

  static bool end_oldest(const Group& group, const CommunicatorCore& node, Requests& requests,
                         std::size_t posted, std::size_t& ended);
  bool scatter(Group& group, const Posted& posted);
  bool exchange(Group& group, const Posted& posted);
  bool gather(Group& group, const Posted& posted);
  void post_scatter(Group& group, const Posted& posted);
  void post_gather(Group& group, const Posted& posted);
  void begin_exchange(Group& group, const Posted& posted);
  void count_shares(Group& group, std::size_t block) const;

  HierarchyPlan plan_;
  std::size_t element_bytes_;
  std::size_t node_rank_;  // this rank's among the members on the node
  bool owns_;              // a shard
  // Blocks below these: scattering, scattered; exchanged between nodes; gathering, gathered.
  std::size_t scatters_posted_ = 0;
  std::size_t scattered_ = 0;
  std::size_t exchanged_ = 0;
  std::size_t gathers_posted_ = 0;
  std::size_t gathered_ = 0;
  Requests scatters_;
  Requests gathers_;
  Posted exchange_;
  OperationStorage<2048> exchanging_;
};

// Short data is not cut: its bytes are few, and each exchange costs messages.
std::size_t shards_of(const Group& group, std::size_t bytes) noexcept {
  const bool is_short = group.allreduce_table.pick(bytes) == AllreduceAlgorithm::doubling;
  return is_short ? 1 : group.levels->shards;
}

// The group's member that is owner `owner` of this rank's shard.
std::size_t member_of(const Group& group, std::size_t owner) {
  const int rank = group.levels->owners->group.members[owner].world_rank;
  const auto found = std::ranges::find(group.members, rank, &Member::world_rank);
  return static_cast<std::size_t>(found - group.members.begin());
}

HierarchicalAllreduce::HierarchicalAllreduce(Group& group, const Posted& posted)
    : plan_(posted.input.bytes(), shards_of(group, posted.input.bytes())),
      element_bytes_(size_of(posted.fingerprint.type)),
      node_rank_(group.levels->node_scatter->group().index()),
      owns_(node_rank_ < plan_.shards()) {
  if (!owns_) return;
  Group& owners = group.levels->owners->group;
  owners.segment_bytes = group.segment_bytes;
  owners.allreduce_table = group.allreduce_table;
}

// The oldest block goes first, because peers have waited for it longest.
Progress HierarchicalAllreduce::step(Group& group, const Posted& posted) {
  bool moved = gather(group, posted);
  try {
    moved = exchange(group, posted) || moved;
  } catch (const LinkFailure& failure) {
    throw LinkFailure(member_of(group, failure.member()), failure.what(), failure.truncated());
  }
  moved = scatter(group, posted) || moved;
  if (gathered_ < plan_.blocks()) return moved ? Progress::moved : Progress::idle;
  return Progress::done;
}

// Has the oldest operation of those under way on the node ended? Throws its failure.
bool HierarchicalAllreduce::end_oldest(const Group& group, const CommunicatorCore& node,
                                       Requests& requests, std::size_t posted, std::size_t& ended) {
  if (ended == posted) return false;
  if (node.failure()) throw Error(*node.failure());
  Request& oldest = requests[ended % blocks_under_way];
  if (!CommunicatorCore::finished(oldest)) return false;
  oldest = Request();
  group.counters->operations -= 1;  // the node has counted it, but it is a part of this one
  ended += 1;
  return true;
}

// The first stage of a block. It begins when the block two before it is complete.
bool HierarchicalAllreduce::scatter(Group& group, const Posted& posted) {
  bool moved =
      end_oldest(group, *group.levels->node_scatter, scatters_, scatters_posted_, scattered_);
  if (scatters_posted_ < plan_.blocks() && scatters_posted_ < gathered_ + blocks_under_way) {
    post_scatter(group, posted);
    moved = true;
  }
  return moved;
}

// Elements of each rank of the node.
void HierarchicalAllreduce::count_shares(Group& group, std::size_t block) const {
  std::vector<std::size_t>& shares = group.levels->shares;
  shares.resize(group.levels->node_scatter->group().count());
  for (std::size_t r = 0; r < shares.size(); ++r) {
    shares[r] = plan_.shard(block, r).size() / element_bytes_;
  }
}

void HierarchicalAllreduce::post_scatter(Group& group, const Posted& posted) {
  CommunicatorCore& node = *group.levels->node_scatter;
  count_shares(group, scatters_posted_);
  scatters_[scatters_posted_ % blocks_under_way] = node.post(
      node.prepare_reduce_scatter(part_of(posted.input, plan_.block(scatters_posted_)),
                                  part_of(posted.output, plan_.shard(scatters_posted_, node_rank_)),
                                  partial_op(posted.fingerprint.op), group.levels->shares));
  scatters_posted_ += 1;
}

// Begins the exchange of the next block whose shard is reduced on this node, and goes on with it.
bool HierarchicalAllreduce::exchange(Group& group, const Posted& posted) {
  bool moved = false;
  if (exchanged_ < scattered_ && exchanging_.operation() == nullptr) {
    begin_exchange(group, posted);
    moved = true;
  }
  Operation* const operation = exchanging_.operation();
  if (operation == nullptr) return moved;
  const Progress progress = operation->step(group.levels->owners->group, exchange_);
  if (progress != Progress::done) return moved || progress == Progress::moved;
  exchanging_.clear();
  exchanged_ += 1;
  return true;
}

// The exchange is an allreduce of its own, in place, among the owners of the shard.
void HierarchicalAllreduce::begin_exchange(Group& group, const Posted& posted) {
  const Range shard = plan_.shard(exchanged_, node_rank_);
  if (!owns_ || shard.size() == 0) {
    exchanged_ += 1;
    return;
  }
  Group& owners = group.levels->owners->group;
  exchange_.sequence = posted.sequence;
  exchange_.fingerprint = posted.fingerprint;
  exchange_.fingerprint.count = shard.size() / element_bytes_;
  exchange_.output = part_of(posted.output, shard);
  exchange_.input = as_const_block(exchange_.output);
  exchanging_.start(choose(Protocol::links, owners, exchange_), owners, exchange_);
}

// The rank sends its shard from the output, and receives the others around it. It does so only when
// all of its node have reduced the block: they read the input, which may be the same memory.
bool HierarchicalAllreduce::gather(Group& group, const Posted& posted) {
  bool moved = end_oldest(group, *group.levels->node_gather, gathers_, gathers_posted_, gathered_);
  if (gathers_posted_ < exchanged_) {
    post_gather(group, posted);
    moved = true;
  }
  return moved;
}

void HierarchicalAllreduce::post_gather(Group& group, const Posted& posted) {
  CommunicatorCore& node = *group.levels->node_gather;
  count_shares(group, gathers_posted_);
  gathers_[gathers_posted_ % blocks_under_way] = node.post(node.prepare_allgather(
      as_const_block(part_of(posted.output, plan_.shard(gathers_posted_, node_rank_))),
      part_of(posted.output, plan_.block(gathers_posted_)), group.levels->shares));
  gathers_posted_ += 1;
}

// What is waited for on the node is reported by the node's communicators.
bool HierarchicalAllreduce::waits_for(const Group& group, std::size_t member) const {
  const Operation* const operation = exchanging_.operation();
  if (operation == nullptr) return false;
  const Group& owners = group.levels->owners->group;
  for (std::size_t owner = 0; owner < owners.count(); ++owner) {
    if (member_of(group, owner) == member && operation->waits_for(owners, owner)) return true;
  }
  return false;
}

bool suits_hierarchy(const Group& group, const Posted& posted) {
  return posted.fingerprint.collective == shm::Collective::allreduce && group.levels != nullptr &&
         group.levels->shares_nodes;
}

}  // namespace

constexpr Algorithm algorithms::hierarchical_allreduce =
    algorithm_of<HierarchicalAllreduce>(Protocol::links, &suits_hierarchy);

}  // namespace rondo::transport

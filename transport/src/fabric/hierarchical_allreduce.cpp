#include "fabric/hierarchical_allreduce.hpp"

#include <algorithm>

#include "core/communicator_core.hpp"
#include "fabric/levels.hpp"
#include "fabric/link_failure.hpp"
#include "node/rows.hpp"

namespace rondo::transport {
namespace {

ConstBlock as_input(const Block& block) noexcept {
  return {block.data, block.type, block.rows, block.row_bytes, block.stride_bytes};
}

bool is_over(const CommunicatorCore& core, const Request& request) {
  if (core.failure()) throw Error(*core.failure());
  return CommunicatorCore::finished(request);
}

std::size_t shards_of(const Group& group, std::size_t bytes) noexcept {
  const bool is_short = group.allreduce_table.pick(bytes) == AllreduceAlgorithm::doubling;
  return is_short ? 1 : group.levels->shards;
}

// The group's member that is member `holder` of those who hold this rank's shard.
std::size_t member_of(const Group& group, std::size_t holder) {
  const int rank = group.levels->holders->group.members[holder].world_rank;
  const auto found = std::ranges::find(group.members, rank, &Member::world_rank);
  return static_cast<std::size_t>(found - group.members.begin());
}

}  // namespace

HierarchicalAllreduce::HierarchicalAllreduce(Group& group, const Posted& posted)
    : plan_(posted.input.bytes(), shards_of(group, posted.input.bytes())),
      element_bytes_(size_of(posted.fingerprint.type)),
      place_(group.levels->down->group().index()),
      holds_(place_ < plan_.shards()) {
  if (!holds_) return;
  Group& holders = group.levels->holders->group;
  holders.segment_bytes = group.segment_bytes;
  holders.allreduce_table = group.allreduce_table;
}

// The oldest block goes first: it is what peers wait for longest.
Progress HierarchicalAllreduce::step(Group& group, const Posted& posted) {
  bool moved = gather(group, posted);
  try {
    if (exchanged_ < scattered_ && std::holds_alternative<std::monostate>(exchanging_)) {
      begin_exchange(group, posted);
      moved = true;
    }
    moved = exchange(group) || moved;
  } catch (const LinkFailure& failure) {
    throw LinkFailure(member_of(group, failure.member()), failure.what(), failure.truncated());
  }
  moved = scatter(group, posted) || moved;
  if (gathered_ < plan_.blocks()) return moved ? Progress::moved : Progress::idle;
  return Progress::done;
}

bool HierarchicalAllreduce::scatter(Group& group, const Posted& posted) {
  bool moved = false;
  if (scattered_ < scatters_posted_ &&
      is_over(*group.levels->down, scatters_[scattered_ % blocks_under_way])) {
    scatters_[scattered_ % blocks_under_way] = Request();
    group.counters->operations -= 1;  // a part of this one
    scattered_ += 1;
    moved = true;
  }
  if (scatters_posted_ < plan_.blocks() && scatters_posted_ < gathered_ + blocks_under_way) {
    post_scatter(group, posted);
    moved = true;
  }
  return moved;
}

// Elements of each rank of the node.
void HierarchicalAllreduce::count_shares(Group& group, std::size_t block) const {
  std::vector<std::size_t>& shares = group.levels->shares;
  shares.resize(group.levels->down->group().count());
  for (std::size_t r = 0; r < shares.size(); ++r) {
    shares[r] = plan_.shard(block, r).size() / element_bytes_;
  }
}

void HierarchicalAllreduce::post_scatter(Group& group, const Posted& posted) {
  CommunicatorCore& down = *group.levels->down;
  count_shares(group, scatters_posted_);
  scatters_[scatters_posted_ % blocks_under_way] = down.post(
      down.prepare_reduce_scatter(part_of(posted.input, plan_.block(scatters_posted_)),
                                  part_of(posted.output, plan_.shard(scatters_posted_, place_)),
                                  posted.fingerprint.op, group.levels->shares));
  scatters_posted_ += 1;
}

void HierarchicalAllreduce::begin_exchange(Group& group, const Posted& posted) {
  const Range shard = plan_.shard(exchanged_, place_);
  if (!holds_ || shard.size() == 0) {
    exchanged_ += 1;
    return;
  }
  Group& holders = group.levels->holders->group;
  exchange_.sequence = posted.sequence;
  exchange_.fingerprint = posted.fingerprint;
  exchange_.fingerprint.count = shard.size() / element_bytes_;
  exchange_.output = part_of(posted.output, shard);
  exchange_.input = as_input(exchange_.output);
  if (holders.allreduce_table.pick(shard.size()) == AllreduceAlgorithm::ring) {
    exchanging_.emplace<RingAllreduce>(holders, exchange_);
  } else {
    exchanging_.emplace<DoublingAllreduce>(holders, exchange_);
  }
}

Operation* HierarchicalAllreduce::exchanging() {
  if (auto* ring = std::get_if<RingAllreduce>(&exchanging_)) return ring;
  return std::get_if<DoublingAllreduce>(&exchanging_);
}

bool HierarchicalAllreduce::exchange(Group& group) {
  Operation* const operation = exchanging();
  if (operation == nullptr) return false;
  const Progress progress = operation->step(group.levels->holders->group, exchange_);
  if (progress != Progress::done) return progress == Progress::moved;
  exchanging_.emplace<std::monostate>();
  exchanged_ += 1;
  return true;
}

// The rank gives its shard from where it lies, and receives the others around it. Only when all
// of its node have reduced the block: they read the input, which may be the same memory.
bool HierarchicalAllreduce::gather(Group& group, const Posted& posted) {
  bool moved = false;
  if (gathered_ < gathers_posted_ &&
      is_over(*group.levels->up, gathers_[gathered_ % blocks_under_way])) {
    gathers_[gathered_ % blocks_under_way] = Request();
    group.counters->operations -= 1;  // a part of this one
    gathered_ += 1;
    moved = true;
  }
  if (gathers_posted_ < exchanged_) {
    post_gather(group, posted);
    moved = true;
  }
  return moved;
}

void HierarchicalAllreduce::post_gather(Group& group, const Posted& posted) {
  CommunicatorCore& up = *group.levels->up;
  count_shares(group, gathers_posted_);
  gathers_[gathers_posted_ % blocks_under_way] = up.post(up.prepare_allgather(
      as_input(part_of(posted.output, plan_.shard(gathers_posted_, place_))),
      part_of(posted.output, plan_.block(gathers_posted_)), group.levels->shares));
  gathers_posted_ += 1;
}

bool HierarchicalAllreduce::waits_for(const Group& group, std::size_t member) const {
  const auto waits = [&](const Operation& operation) {
    const Group& holders = group.levels->holders->group;
    for (std::size_t h = 0; h < holders.count(); ++h) {
      if (member_of(group, h) == member && operation.waits_for(holders, h)) return true;
    }
    return false;
  };
  if (const auto* ring = std::get_if<RingAllreduce>(&exchanging_)) return waits(*ring);
  const auto* doubling = std::get_if<DoublingAllreduce>(&exchanging_);
  return doubling != nullptr && waits(*doubling);
}

}  // namespace rondo::transport

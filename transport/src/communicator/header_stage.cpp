// The agreement on operations between nodes. The members are seen in three ways: flat, all of them;
// by node, with a queue of operations in shared memory; and for each shard of the data as its
// owners, one per node. There are no slots to compare, so headers travel with the messages of the
// algorithms.

#include "communicator/header_stage.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "collective/blocks.hpp"
#include "communicator/communicator_core.hpp"
#include "recorder/names.hpp"
#include "reduce/reduce.hpp"
#include "world/world_core.hpp"

namespace rondo::transport {
namespace {

// The members of each node, nodes in the order of their first member.
std::vector<std::vector<std::size_t>> members_by_node(const WorldCore& world, const Group& group) {
  std::vector<int> nodes;
  std::vector<std::vector<std::size_t>> members;
  for (std::size_t m = 0; m < group.count(); ++m) {
    const int node = world.peer(group.members[m].world_rank).info.node;
    const auto found = std::ranges::find(nodes, node);
    if (found == nodes.end()) {
      nodes.push_back(node);
      members.push_back({m});
    } else {
      members[static_cast<std::size_t>(found - nodes.begin())].push_back(m);
    }
  }
  return members;
}

// Tells apart communicators that have the same context, because contexts may be used again.
std::uint64_t hash_of_members(const Group& group) {
  shm::Hash hash;
  for (const Member& member : group.members)
    hash.add(static_cast<std::uint64_t>(member.world_rank));
  return hash.value();
}

// Opens an exchange among the owners of this rank's shard: a group of them, whose channel has a
// lane of its own.
void open_exchange(Hierarchy& levels, std::size_t lane, WorldCore& world, const Group& flat) {
  Hierarchy::Exchange& exchange = levels.exchanges.emplace_back();
  for (const auto& node : levels.nodes) {
    const Member& owner = flat.members[node[levels.node_rank]];
    exchange.group.members.push_back({.world_rank = owner.world_rank, .port = owner.port});
  }
  exchange.group.rank = static_cast<int>(levels.node);
  exchange.channel = std::make_unique<Channel>(routes_of(world, exchange.group),
                                               flat.members[flat.index()].port, *flat.counters);
  exchange.channel->use_lane(lane);
  exchange.group.equip(flat.team, *flat.counters, *exchange.channel, world.arena());
}

// Are the lengths of messages known to their two ends alone? Then one that the two see differently
// is a mismatch that headers do not tell.
bool has_own_lengths(shm::Collective collective) noexcept {
  return collective == shm::Collective::gather || collective == shm::Collective::scatter ||
         collective == shm::Collective::alltoallv;
}

// Lanes of the port that all members share with what the flat group itself sends (lane 0).
constexpr std::size_t node_lane = 1;
constexpr std::size_t first_exchange_lane = 2;
static_assert(first_exchange_lane + Hierarchy::exchanges_at_once <= Channel::lanes);

}  // namespace

HeaderStage::HeaderStage(CommunicatorCore& core, std::uint64_t first_on_node)
    : core_(core),
      group_(core.group()),
      world_(core.world()),
      channel_(core.channel_),
      previous_((group_.index() + group_.count() - 1) % group_.count()),
      next_((group_.index() + 1) % group_.count()),
      members_hash_(hash_of_members(group_)),
      on_node_(core, node_lane, first_on_node) {
  channel_.use_headers(previous_, next_);
  levels_.on_node = &on_node_;
  levels_.scratch = Scratch(&world_.arena());
  levels_.arrange(members_by_node(world_, group_), group_.index());
  if (levels_.shares_nodes && levels_.node_rank < levels_.shards) {
    for (std::size_t i = 0; i < Hierarchy::exchanges_at_once; ++i) {
      open_exchange(levels_, first_exchange_lane + i, world_, group_);
    }
  }
  group_.levels = &levels_;
  if (world_.options().fabric.allreduce.empty()) {
    const std::size_t ends = levels_.shares_nodes ? levels_.nodes.size() : group_.count();
    group_.allreduce_table = AlgorithmTable::for_ranks(ends);
  }
}

void HeaderStage::publish(OperationRecord& record) const {
  const Posted& posted = record.posted;
  record.header->begin({.sequence = posted.sequence, .fingerprint = posted.fingerprint},
                       has_own_lengths(posted.fingerprint.collective)
                           ? HeaderExchange::Carrying::refused
                           : HeaderExchange::Carrying::allowed);
  channel_.recv_header(*record.header);
}

void HeaderStage::start(OperationRecord& record, OperationStorage<>& storage) const {
  channel_.carry_with(*record.header);
  record.operation = &transport::start(storage, Protocol::links, group_, record.posted);
}

void HeaderStage::require_received(const OperationRecord& record) const {
  throw_if_failed(channel_, previous_, record.header->received);
}

// The header leaves with what the first step sends.
Progress HeaderStage::step(OperationRecord& record) const {
  require_received(record);
  compare(record);
  const Progress result = record.operation->step(group_, record.posted);
  channel_.send_header(*record.header);
  return result;
}

// An algorithm can be over before the headers are through: only with them the operation is
// complete, because a mismatch has to be an error on every rank.
bool HeaderStage::all_have_ended(OperationRecord& record) const {
  require_received(record);
  throw_if_failed(channel_, next_, record.header->sent);
  if (!record.header->received.done() || !record.header->sent.done()) return false;
  compare(record);
  return true;
}

// Between nodes ranks join sums. No rank reads or writes the output any more. A tile of it; true
// when all is divided.
bool HeaderStage::finish(OperationRecord& record) const {
  const Posted& posted = record.posted;
  const shm::Fingerprint& asked = posted.fingerprint;
  const bool elsewhere =
      asked.collective == shm::Collective::reduce && !posted.is_root(group_.index());
  if (!reduces(asked.collective) || asked.op != ReduceOp::avg || elsewhere) return true;
  const Division divide = find_division(asked.type);
  const Block& result = posted.output;
  const std::size_t begin = record.divided;
  record.divided += std::min(threads_of(group_.team) * joined_bytes, result.bytes() - begin);
  for_parts(group_.team, record.divided - begin, [&](const TeamPart& part) {
    for_each_run(run_bytes(result), begin + part.begin, part.size(),
                 [&](std::size_t row, std::size_t column, std::size_t, std::size_t length) {
                   divide(result.data + row * result.stride_bytes + column,
                          length / size_of(asked.type), group_.count());
                 });
  });
  return record.divided == result.bytes();
}

// The header of the previous rank comes at any time; it is compared once.
void HeaderStage::compare(OperationRecord& record) const {
  const HeaderExchange& header = *record.header;
  if (header.compared() || !header.received.done()) return;
  core_.compare(record, group_.members[previous_].world_rank, header.theirs().fingerprint,
                header.theirs().sequence);
  channel_.accept_header(*record.header);
}

// Whatever an algorithm waits for, a difference explains it.
void HeaderStage::compare_all() const {
  for (OperationRecord* record = core_.oldest_; record != nullptr; record = record->next) {
    if (record->stage != Stage::queued) compare(*record);
  }
}

bool HeaderStage::waits_for(const OperationRecord& record, std::size_t member) const {
  const auto waits = [&](const OperationRecord* part) {
    return part != nullptr && part->posted.sequence <= record.posted.sequence &&
           keeps_waiting(*part, member);
  };
  return waits(core_.oldest_) || waits(core_.current_);
}

bool HeaderStage::keeps_waiting(const OperationRecord& record, std::size_t member) const {
  if (member == previous_ && !record.header->received.done()) return true;
  if (record.stage == Stage::draining) return member == next_ && !record.header->sent.done();
  return record.stage == Stage::running && record.operation->waits_for(group_, member);
}

const OperationRecord& HeaderStage::front_of(const OperationRecord& /*record*/) const {
  return *core_.oldest_;
}

void HeaderStage::give_up(OperationRecord& record) const {
  channel_.cancel(previous_, record.header->received);
  channel_.cancel(next_, record.header->sent);
}

}  // namespace rondo::transport

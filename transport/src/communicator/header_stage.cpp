// The agreement on operations between nodes. The members are seen in three ways: flat, all of them;
// by node, as two communicators in shared memory; and for each shard of the data as its owners, one
// per node. There are no slots to compare, so headers travel with the messages of the algorithms.

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

// Routes to the ranks that own `shard`, one per node.
std::vector<Channel::Route> routes_to_owners(std::size_t shard, const Hierarchy& levels,
                                             const WorldCore& world, const Group& flat) {
  std::vector<Channel::Route> routes;
  for (const auto& node : levels.nodes) {
    const Member& owner = flat.members[node[shard]];
    routes.push_back({.world_rank = owner.world_rank,
                      .link = world.link_to(owner.world_rank),
                      .leaves_node = true,
                      .port = owner.port});
  }
  return routes;
}

// Opens an exchange among the owners of this rank's shard: a group of them, whose channel has a
// lane of its own.
void open_exchange(Hierarchy& levels, std::size_t lane, WorldCore& world, const Group& flat) {
  Hierarchy::Exchange& exchange = levels.exchanges.emplace_back();
  exchange.channel =
      std::make_unique<Channel>(routes_to_owners(levels.node_rank, levels, world, flat),
                                flat.members[flat.index()].port, *flat.counters);
  exchange.channel->use_lane(lane);
  Group& owners = exchange.group;
  owners.rank = static_cast<int>(levels.node);
  for (const auto& node : levels.nodes) {
    owners.members.push_back({.world_rank = flat.members[node[levels.node_rank]].world_rank});
  }
  owners.team = flat.team;
  owners.scratch = Scratch(&world.arena());
  owners.channel = exchange.channel.get();
  owners.counters = flat.counters;
  owners.sources.resize(levels.nodes.size());
  owners.destinations.resize(levels.nodes.size());
}

// Are the lengths of messages known to their two ends alone? Then one that the two see differently
// is a mismatch that headers do not tell.
bool has_own_lengths(shm::Collective collective) noexcept {
  return collective == shm::Collective::gather || collective == shm::Collective::scatter ||
         collective == shm::Collective::alltoallv;
}

// Lanes of the port that all members share with what the flat group itself sends (lane 0).
constexpr std::size_t scatter_lane = 1;
constexpr std::size_t gather_lane = 2;
constexpr std::size_t first_exchange_lane = 3;
static_assert(first_exchange_lane + Hierarchy::exchanges_at_once <= Channel::lanes);

}  // namespace

HeaderStage::HeaderStage(CommunicatorCore& core, std::shared_ptr<CommunicatorCore> node_scatter,
                         std::shared_ptr<CommunicatorCore> node_gather)
    : core_(core),
      group_(core.group()),
      world_(core.world()),
      channel_(core.channel_),
      previous_((group_.index() + group_.count() - 1) % group_.count()),
      next_((group_.index() + 1) % group_.count()),
      members_hash_(hash_of_members(group_)),
      node_scatter_(std::move(node_scatter)),
      node_gather_(std::move(node_gather)) {
  channel_.use_headers(previous_, next_);
  node_scatter_->use_lane(scatter_lane);
  node_gather_->use_lane(gather_lane);
  levels_.node_scatter = node_scatter_.get();
  levels_.node_gather = node_gather_.get();
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
  record.enter(Stage::published);
}

void HeaderStage::start(OperationRecord& record) const {
  channel_.carry_with(*record.header);
  core_.start_algorithm(record, Protocol::links);
  record.enter(Stage::running);
}

void HeaderStage::require_received(const OperationRecord& record) const {
  throw_if_failed(channel_, previous_, record.header->received);
}

// The header leaves with what the first step sends. When what an operation has posted on its node
// does not match, its own header explains why, or that of another rank.
Progress HeaderStage::step(OperationRecord& record) const {
  require_received(record);
  compare(record);
  Progress result = Progress::idle;
  try {
    result = record.operation->step(group_, record.posted);
  } catch (const Error& error) {
    if (error.code() != Errc::mismatch) throw;
    core_.defer_failure(error);
  }
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
  core_.compare(record, previous_, header.theirs().fingerprint, header.theirs().sequence);
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

// The algorithm knows whose messages it waits for, and the node's communicators who is missing
// there.
bool HeaderStage::keeps_waiting(const OperationRecord& record, std::size_t member) const {
  if (member == previous_ && !record.header->received.done()) return true;
  if (record.stage == Stage::draining) return member == next_ && !record.header->sent.done();
  if (record.stage != Stage::running) return false;
  const int rank = group_.members[member].world_rank;
  return record.operation->waits_for(group_, member) || node_scatter_->awaits(rank) ||
         node_gather_->awaits(rank);
}

const OperationRecord& HeaderStage::front_of(const OperationRecord& /*record*/) const {
  return *core_.oldest_;
}

// Operations that are given up may wait for what they have posted on this node.
void HeaderStage::fail(const Error& error) {
  node_scatter_->poison(error);
  node_gather_->poison(error);
}

void HeaderStage::give_up(OperationRecord& record) const {
  channel_.cancel(previous_, record.header->received);
  channel_.cancel(next_, record.header->sent);
}

}  // namespace rondo::transport

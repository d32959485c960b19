// Implements what a communicator does differently when its ranks are on several nodes. Its members
// are seen in three ways: flat, all of them; by node, as two communicators in shared memory; and
// for each shard of the data as its owners, one per node. There are no slots to compare, so headers
// travel with the messages of the algorithms.

#include "communicator/multi_node.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "collective/blocks.hpp"
#include "communicator/communicator_core.hpp"
#include "message/channel.hpp"
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

MultiNode::MultiNode(WorldCore& world, Group& flat, Channel& channel,
                     std::shared_ptr<CommunicatorCore> node_scatter,
                     std::shared_ptr<CommunicatorCore> node_gather)
    : channel_(&channel),
      previous_((flat.index() + flat.count() - 1) % flat.count()),
      next_((flat.index() + 1) % flat.count()),
      members_hash_(hash_of_members(flat)),
      node_scatter_(std::move(node_scatter)),
      node_gather_(std::move(node_gather)) {
  channel.use_headers(previous_, next_);
  node_scatter_->use_lane(scatter_lane);
  node_gather_->use_lane(gather_lane);
  levels_.node_scatter = node_scatter_.get();
  levels_.node_gather = node_gather_.get();
  levels_.scratch = Scratch(&world.arena());
  levels_.arrange(members_by_node(world, flat), flat.index());
  if (levels_.shares_nodes && levels_.node_rank < levels_.shards) {
    for (std::size_t i = 0; i < Hierarchy::exchanges_at_once; ++i) {
      open_exchange(levels_, first_exchange_lane + i, world, flat);
    }
  }
  flat.levels = &levels_;
  if (world.options().fabric.allreduce.empty()) {
    const std::size_t ends = levels_.shares_nodes ? levels_.nodes.size() : flat.count();
    flat.allreduce_table = AlgorithmTable::for_ranks(ends);
  }
}

void MultiNode::begin_headers(OperationRecord& record) const {
  const Posted& posted = record.posted;
  record.header->begin({.sequence = posted.sequence, .fingerprint = posted.fingerprint},
                       has_own_lengths(posted.fingerprint.collective)
                           ? HeaderExchange::Carrying::refused
                           : HeaderExchange::Carrying::allowed);
  channel_->recv_header(*record.header);
}

void MultiNode::require_header_received(const OperationRecord& record) const {
  throw_if_failed(*channel_, previous_, record.header->received);
}

bool MultiNode::headers_are_through(OperationRecord& record) const {
  require_header_received(record);
  throw_if_failed(*channel_, next_, record.header->sent);
  return record.header->received.done() && record.header->sent.done();
}

void MultiNode::cancel_headers(OperationRecord& record) const {
  channel_->cancel(previous_, record.header->received);
  channel_->cancel(next_, record.header->sent);
}

// The algorithm knows whose messages it waits for, and the node's communicators who is missing
// there.
bool MultiNode::waits_for(const OperationRecord& record, const Group& flat,
                          std::size_t member) const {
  if (member == previous_ && !record.header->received.done()) return true;
  if (record.stage == Stage::draining) return member == next_ && !record.header->sent.done();
  if (record.stage != Stage::running) return false;
  const int rank = flat.members[member].world_rank;
  return record.operation->waits_for(flat, member) || node_scatter_->awaits(rank) ||
         node_gather_->awaits(rank);
}

void MultiNode::poison(const Error& error) {
  node_scatter_->poison(error);
  node_gather_->poison(error);
}

// A mismatch may have been told before this rank had made the communicator.
void CommunicatorCore::span_nodes(std::shared_ptr<CommunicatorCore> node_scatter,
                                  std::shared_ptr<CommunicatorCore> node_gather) {
  multi_node_ = std::make_unique<MultiNode>(*world_, group_, channel_, std::move(node_scatter),
                                            std::move(node_gather));
  for (const StatusMessage& status : world_->divergences()) handle_divergence(status);
}

// Nothing limits how many operations are under way: each has its own header and label.
bool CommunicatorCore::post_queued_headers() {
  for (; unpublished_ != nullptr; unpublished_ = unpublished_->next) {
    if (unpublished_->coalesced && !unpublished_->coalesced->pack()) break;
    multi_node_->begin_headers(*unpublished_);
    unpublished_->enter(Stage::published);
  }
  return true;
}

// The header of the previous rank comes at any time; it is compared once.
void CommunicatorCore::compare_header(OperationRecord& record) {
  const HeaderExchange& header = *record.header;
  if (header.compared() || !header.received.done()) return;
  compare(record, multi_node_->previous(), header.theirs().fingerprint, header.theirs().sequence);
  channel_.accept_header(*record.header);
}

// An algorithm can be over before the headers are through: only with them the operation is
// complete, because a mismatch has to be an error on every rank.
bool CommunicatorCore::drain_headers() {
  bool moved = false;
  for (OperationRecord* record = oldest_; record != current_; record = record->next) {
    if (record->stage != Stage::draining) continue;
    if (!multi_node_->headers_are_through(*record)) break;
    compare_header(*record);
    moved = true;
    if (!finish(*record)) break;
    record->enter(Stage::complete);
  }
  unlist_complete();
  return moved;
}

// Between nodes ranks join sums. No rank reads or writes the output any more. A tile of it; true
// when all is divided.
bool CommunicatorCore::divide_average(OperationRecord& record) const {
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

// Whatever an algorithm waits for, a difference explains it.
void CommunicatorCore::compare_all_headers() {
  for (OperationRecord* record = oldest_; record != nullptr; record = record->next) {
    if (record->stage != Stage::queued) compare_header(*record);
  }
}

// The header leaves with what the first step sends. When what an operation has posted on its node
// does not match, its own header explains why, or that of another rank.
Progress CommunicatorCore::step_between_nodes(OperationRecord& record) {
  multi_node_->require_header_received(record);
  compare_header(record);
  Progress result = Progress::idle;
  try {
    result = record.operation->step(group_, record.posted);
  } catch (const Error& error) {
    if (error.code() != Errc::mismatch) throw;
    defer_failure(error);
  }
  channel_.send_header(*record.header);
  return result;
}

}  // namespace rondo::transport

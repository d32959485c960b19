// How operations of a group with several ranks on some node run (see Hierarchy).
//
// Every block goes through three stages: operations on the node, an exchange between nodes among
// the owners of a shard, operations on the node. Several blocks are under way, so that what one
// does on the node overlaps what others do between nodes; up to three exchanges run at once, so
// that one receives while another reduces and a third sends. Their messages cannot be confused,
// because each exchange has a channel with a lane of its own.
//
// Nothing can stall: the operations of each of the two node communicators are posted in the same
// order by all ranks of the node, by block and part; blocks begin in order; and a stage of a block
// waits only for earlier stages of this block and for blocks before it. The queue of the
// communicator runs one such operation at a time, so what follows it is posted behind it.

#include "collective/hierarchical/hierarchical.hpp"

#include <utility>

namespace rondo::transport {

void Hierarchy::arrange(std::vector<std::vector<std::size_t>> members_of_nodes,
                        std::size_t member) {
  nodes = std::move(members_of_nodes);
  shards = most_members = nodes.front().size();
  consecutive = true;
  for (const auto& members : nodes) {
    shards = std::min(shards, members.size());
    most_members = std::max(most_members, members.size());
    if (members.back() - members.front() + 1 != members.size()) consecutive = false;
  }
  shares_nodes = most_members > 1;
  even = shards == most_members;
  const Place place = place_of(member);
  node = place.node;
  node_rank = place.rank;
}

Hierarchy::Place Hierarchy::place_of(std::size_t member) const noexcept {
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    const auto found = std::ranges::find(nodes[n], member);
    if (found != nodes[n].end()) {
      return {.node = n, .rank = static_cast<std::size_t>(found - nodes[n].begin())};
    }
  }
  return {};
}

HierarchicalOperation::HierarchicalOperation(Group& group) : levels_(group.levels) {
  for (Hierarchy::Exchange& exchange : levels_->exchanges) {
    exchange.group.segment_bytes = group.segment_bytes;
  }
}

// One that is given up takes its exchanges with it. After the end they may be another's.
HierarchicalOperation::~HierarchicalOperation() {
  if (done_) return;
  for (Hierarchy::Exchange& exchange : levels_->exchanges) exchange.running.clear();
}

// The oldest block goes first, because peers have waited for it longest.
Progress HierarchicalOperation::step(Group& group, const Posted& posted) {
  bool moved = run_after(group, posted);
  try {
    moved = run_exchanges(group, posted) || moved;
  } catch (const LinkFailure& failure) {
    const std::size_t member = levels_->nodes[failure.member()][levels_->node_rank];
    throw LinkFailure(member, failure.what(), failure.error());
  }
  moved = run_before(group, posted) || moved;
  done_ = finished_ == shape.blocks;
  if (!done_) return moved ? Progress::moved : Progress::idle;
  return Progress::done;
}

// Has the oldest operation of those under way on the node ended? Throws its failure. The node has
// counted it, but it is a part of this one.
bool HierarchicalOperation::end_oldest(const Group& group, const NodeCommunicator& node,
                                       NodePhase& phase) {
  if (phase.ended == phase.posted) return false;
  if (node.failure()) throw Error(*node.failure());
  Request& oldest = phase.requests[phase.ended % posted_at_once];
  if (!node.finished(oldest)) return false;
  if (!oldest.empty()) group.counters->operations -= 1;
  oldest = Request();
  phase.ended += 1;
  return true;
}

bool HierarchicalOperation::run_before(Group& group, const Posted& posted) {
  bool moved = end_oldest(group, *levels_->node_scatter, before_);
  const std::size_t next = before_.posted;
  if (next == shape.blocks * shape.before || next == before_.ended + posted_at_once) return moved;
  if (next / shape.before >= finished_ + shape.under_way) return moved;
  before_.requests[next % posted_at_once] =
      post_before(group, posted, next / shape.before, next % shape.before);
  before_.posted += 1;
  return true;
}

// Blocks below it may be exchanged.
std::size_t HierarchicalOperation::ready_to_exchange() const noexcept {
  if (shape.before == 0) return std::min(shape.blocks, finished_ + shape.under_way);
  return (shape.exchanges_early ? before_.posted : before_.ended) / shape.before;
}

bool HierarchicalOperation::run_exchanges(Group& group, const Posted& posted) {
  bool moved = begin_exchange(group, posted);
  for (std::size_t block = exchanged_; block < begun_ && !levels_->exchanges.empty(); ++block) {
    Hierarchy::Exchange& exchange = levels_->exchanges[block % Hierarchy::exchanges_at_once];
    Operation* const operation = exchange.running.operation();
    if (operation == nullptr) continue;
    const Progress progress = operation->step(exchange.group, exchange.posted);
    moved = moved || progress != Progress::idle;
    if (progress == Progress::done) exchange.running.clear();
  }
  for (; exchanged_ < begun_; ++exchanged_, moved = true) {
    if (levels_->exchanges.empty()) continue;
    const auto& oldest = levels_->exchanges[exchanged_ % Hierarchy::exchanges_at_once];
    if (oldest.running.operation() != nullptr) break;
  }
  return moved;
}

bool HierarchicalOperation::begin_exchange(Group& group, const Posted& posted) {
  if (begun_ == ready_to_exchange()) return false;
  if (begun_ == exchanged_ + Hierarchy::exchanges_at_once) return false;
  const std::size_t block = begun_++;
  if (levels_->exchanges.empty()) return true;
  Hierarchy::Exchange& exchange = levels_->exchanges[block % Hierarchy::exchanges_at_once];
  Posted& among_owners = exchange.posted;
  among_owners.sequence = posted.sequence;
  among_owners.fingerprint = posted.fingerprint;
  among_owners.row_bytes_of.clear();
  among_owners.sent_at.clear();
  among_owners.received_at.clear();
  if (describe_exchange(group, posted, block, among_owners)) {
    exchange.running.start(choose(Protocol::links, exchange.group, among_owners), exchange.group,
                           among_owners);
  }
  return true;
}

bool HierarchicalOperation::run_after(Group& group, const Posted& posted) {
  bool moved = end_oldest(group, *levels_->node_gather, after_);
  const std::size_t next = after_.posted;
  if (next < exchanged_ * shape.after && next < after_.ended + posted_at_once) {
    after_.requests[next % posted_at_once] =
        post_after(group, posted, next / shape.after, next % shape.after);
    after_.posted += 1;
    moved = true;
  }
  std::size_t over = shape.after == 0 ? exchanged_ : after_.ended / shape.after;
  if (shape.before > 0) over = std::min(over, before_.ended / shape.before);
  for (; finished_ < over; ++finished_, moved = true) finish(group, posted, finished_);
  return moved;
}

// The node's communicators report what is waited for on the node.
bool HierarchicalOperation::waits_for(const Group& /*group*/, std::size_t member) const {
  for (const Hierarchy::Exchange& exchange : levels_->exchanges) {
    const Operation* const operation = exchange.running.operation();
    if (operation == nullptr || done_) continue;
    for (std::size_t owner = 0; owner < exchange.group.count(); ++owner) {
      if (levels_->nodes[owner][levels_->node_rank] == member &&
          operation->waits_for(exchange.group, owner)) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace rondo::transport

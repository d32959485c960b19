// How operations of a group with several ranks on some node run (see Hierarchy).
//
// Every block goes through three stages: operations on the node, an exchange between nodes among
// the owners of a shard, operations on the node. Several blocks are under way, so that what one
// does on the node overlaps what others do between nodes; up to three exchanges run at once, so
// that one receives while another reduces and a third sends. Their messages cannot be confused,
// because each exchange has a channel with a lane of its own.
//
// Nothing can stall: all ranks of a node post the same operations there in the same order, which
// numbers alone decide; blocks begin in order; and a stage of a block waits only for earlier stages
// of this block and for what comes before it in that order. The queue of the communicator runs one
// hierarchical operation at a time, so what follows it is posted behind it.

#include "collective/hierarchical/hierarchical.hpp"

#include <algorithm>
#include <utility>

#include "reduce/reduce.hpp"

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

HierarchicalOperation::HierarchicalOperation(Group& group, const Posted& posted)
    : group_(group), posted_(posted), levels_(*group.levels) {
  for (Hierarchy::Exchange& exchange : levels_.exchanges) {
    exchange.group.segment_bytes = group.segment_bytes;
  }
}

// One that is given up takes its parts with it. After the end they may be another's.
HierarchicalOperation::~HierarchicalOperation() {
  if (done_) return;
  levels_.on_node->clear();
  for (Hierarchy::Exchange& exchange : levels_.exchanges) exchange.running.clear();
}

// Ranks of a node are numbered as the node's members, owners by their nodes.
Progress HierarchicalOperation::step(Group& /*group*/, const Posted& /*posted*/) {
  const auto named = [](auto run, auto member_of) {
    try {
      return run();
    } catch (const LinkFailure& failure) {
      throw LinkFailure(member_of(failure.member()), failure.what(), failure.error());
    }
  };
  bool moved = named([this] { return run_on_node(); },
                     [this](std::size_t rank) { return levels_.members_here()[rank]; });
  moved = named([this] { return run_exchanges(); },
                [this](std::size_t node) { return levels_.nodes[node][levels_.node_rank]; }) ||
          moved;
  moved = finish_blocks() || moved;
  done_ = finished_ == shape.blocks;
  if (done_) return Progress::done;
  return moved ? Progress::moved : Progress::idle;
}

// The arguments that all parts share.
void HierarchicalOperation::clear_arguments(Posted& described) const {
  described.fingerprint = posted_.fingerprint;
  described.fingerprint.root = -1;
  described.fingerprint.op = partial_op(posted_.fingerprint.op);
  described.input = {};
  described.output = {};
  described.row_bytes_of.clear();
  described.sent_at.clear();
  described.received_at.clear();
}

// The first stage runs ahead of the last by as many blocks as may be under way.
bool HierarchicalOperation::next_is_before(const Place& place) const noexcept {
  if (place.before == shape.blocks * shape.before) return false;
  return shape.after == 0 ||
         place.before / shape.before < place.after / shape.after + shape.under_way;
}

bool HierarchicalOperation::post_on_node() {
  Place& next = posted_on_node_;
  const bool before = next_is_before(next);
  const std::size_t parts = before ? shape.before : shape.after;
  std::size_t& count = before ? next.before : next.after;
  const std::size_t ready =
      before ? std::min(shape.blocks, finished_ + shape.under_way) : exchanged_;
  if (count >= ready * parts) return false;
  Posted& on_node = levels_.on_node->next();
  clear_arguments(on_node);
  if (before) {
    describe_before(count / parts, count % parts, on_node);
  } else {
    describe_after(count / parts, count % parts, on_node);
  }
  levels_.on_node->post();
  count += 1;
  return true;
}

bool HierarchicalOperation::run_on_node() {
  bool moved = levels_.on_node->under_way() < NodeOperations::at_once && post_on_node();
  moved = levels_.on_node->step() || moved;
  const std::size_t ended =
      posted_on_node_.before + posted_on_node_.after - levels_.on_node->under_way();
  while (ended_on_node_.before + ended_on_node_.after < ended) {
    (next_is_before(ended_on_node_) ? ended_on_node_.before : ended_on_node_.after) += 1;
  }
  return moved;
}

// Blocks below it may be exchanged.
std::size_t HierarchicalOperation::ready_to_exchange() const noexcept {
  if (shape.before == 0) return std::min(shape.blocks, finished_ + shape.under_way);
  const Place& place = shape.exchanges_early ? posted_on_node_ : ended_on_node_;
  return place.before / shape.before;
}

bool HierarchicalOperation::run_exchanges() {
  bool moved = begin_exchange();
  for (std::size_t block = exchanged_; block < begun_ && !levels_.exchanges.empty(); ++block) {
    Hierarchy::Exchange& exchange = levels_.exchanges[block % Hierarchy::exchanges_at_once];
    Operation* const operation = exchange.running.operation();
    if (operation == nullptr) continue;
    const Progress progress = operation->step(exchange.group, exchange.posted);
    moved = moved || progress != Progress::idle;
    if (progress == Progress::done) exchange.running.clear();
  }
  for (; exchanged_ < begun_; ++exchanged_, moved = true) {
    if (levels_.exchanges.empty()) continue;
    const auto& oldest = levels_.exchanges[exchanged_ % Hierarchy::exchanges_at_once];
    if (oldest.running.operation() != nullptr) break;
  }
  return moved;
}

bool HierarchicalOperation::begin_exchange() {
  if (begun_ == ready_to_exchange()) return false;
  if (begun_ == exchanged_ + Hierarchy::exchanges_at_once) return false;
  const std::size_t block = begun_++;
  if (levels_.exchanges.empty()) return true;
  Hierarchy::Exchange& exchange = levels_.exchanges[block % Hierarchy::exchanges_at_once];
  exchange.posted.sequence = posted_.sequence;
  clear_arguments(exchange.posted);
  if (describe_exchange(block, exchange.posted)) {
    start(exchange.running, Protocol::links, exchange.group, exchange.posted);
  }
  return true;
}

bool HierarchicalOperation::finish_blocks() {
  std::size_t over = shape.after == 0 ? exchanged_ : ended_on_node_.after / shape.after;
  if (shape.before > 0) over = std::min(over, ended_on_node_.before / shape.before);
  const bool moved = finished_ < over;
  for (; finished_ < over; ++finished_) finish(finished_);
  return moved;
}

bool HierarchicalOperation::waits_for(const Group& /*group*/, std::size_t member) const {
  const Hierarchy::Place place = levels_.place_of(member);
  if (place.node == levels_.node && levels_.on_node->waits_for(place.rank)) return true;
  if (done_ || place.rank != levels_.node_rank) return false;
  return std::ranges::any_of(levels_.exchanges, [&](const Hierarchy::Exchange& exchange) {
    const Operation* const operation = exchange.running.operation();
    return operation != nullptr && operation->waits_for(exchange.group, place.node);
  });
}

}  // namespace rondo::transport

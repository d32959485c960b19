#include "core/multi_node.hpp"

#include <algorithm>
#include <ranges>
#include <utility>
#include <vector>

#include "core/communicator_core.hpp"
#include "core/world_core.hpp"
#include "fabric/message.hpp"

namespace rondo::transport {
namespace {

// The label of a header: enough of the sequence that those in flight cannot be confused.
std::uint32_t label_of(std::uint64_t sequence) {
  return static_cast<std::uint32_t>(sequence & 0x3FFF'FFFFU);
}

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

// FNV-1a, a rank at a time.
std::uint64_t hash_of_members(const Group& group) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const Member& member : group.members) {
    hash = (hash ^ static_cast<std::uint64_t>(member.world_rank)) * 0x100000001B3U;
  }
  return hash;
}

// Which member of its node this rank is.
std::size_t place_on_node(const std::vector<std::vector<std::size_t>>& nodes, std::size_t member) {
  for (const auto& node : nodes) {
    const auto found = std::ranges::find(node, member);
    if (found != node.end()) return static_cast<std::size_t>(found - node.begin());
  }
  return 0;
}

Hierarchy::ShardOwners owners_of(std::size_t shard,
                                 const std::vector<std::vector<std::size_t>>& nodes,
                                 const WorldCore& world, const Group& flat) {
  Hierarchy::ShardOwners owners;
  std::vector<Channel::Route> routes;
  for (const auto& node : nodes) {
    const std::size_t member = node[shard];
    const int rank = flat.members[member].world_rank;
    if (member == flat.index()) owners.group.rank = owners.group.size();
    owners.group.members.push_back({.world_rank = rank});
    routes.push_back({.world_rank = rank,
                      .link = world.link_to(rank),
                      .leaves_node = true,
                      .port = flat.members[member].port});
  }
  owners.channel =
      std::make_unique<Channel>(std::move(routes), flat.members[flat.index()].port, *flat.counters);
  owners.group.channel = owners.channel.get();
  owners.group.counters = flat.counters;
  owners.group.sources.resize(nodes.size());
  owners.group.destinations.resize(nodes.size());
  return owners;
}

}  // namespace

MultiNode::MultiNode(const WorldCore& world, Group& flat, const Channel& channel,
                     std::shared_ptr<CommunicatorCore> down, std::shared_ptr<CommunicatorCore> up)
    : channel_(&channel),
      previous_((flat.index() + flat.count() - 1) % flat.count()),
      next_((flat.index() + 1) % flat.count()),
      members_(hash_of_members(flat)),
      down_(std::move(down)),
      up_(std::move(up)) {
  const auto nodes = members_by_node(world, flat);
  const auto sizes = nodes | std::views::transform([](const auto& node) { return node.size(); });
  levels_.shares_nodes = std::ranges::max(sizes) > 1;
  levels_.node_scatter = down_.get();
  levels_.node_gather = up_.get();
  levels_.shards = std::ranges::min(sizes);
  const std::size_t place = place_on_node(nodes, flat.index());
  if (place < levels_.shards) levels_.owners = owners_of(place, nodes, world, flat);
  flat.levels = &levels_;
}

void MultiNode::announce(OperationRecord& record) const {
  HeaderExchange& header = record.header;
  header.mine = {.sequence = record.posted.sequence, .fingerprint = record.posted.fingerprint};
  header.sent.state = header.received.state = rondo_transfer_idle;
  header.compared = false;
  const std::uint32_t label = label_of(record.posted.sequence);
  channel_->recv_labelled(previous_, MessageKind::header, label,
                          std::as_writable_bytes(std::span(&header.theirs, 1)), header.received);
  channel_->send_labelled(next_, MessageKind::header, label,
                          std::as_bytes(std::span(&header.mine, 1)), header.sent);
}

bool MultiNode::heard(OperationRecord& record) const {
  throw_if_failed(*channel_, previous_, record.header.received);
  throw_if_failed(*channel_, next_, record.header.sent);
  return record.header.received.done() && record.header.sent.done();
}

void MultiNode::forget(OperationRecord& record) const {
  channel_->cancel(previous_, record.header.received);
  channel_->cancel(next_, record.header.sent);
}

bool MultiNode::waits_for(const OperationRecord& record, std::size_t member) const {
  return record.header.received.done() || member == previous_;
}

void MultiNode::poison(const Error& error) {
  down_->poison(error);
  up_->poison(error);
}

}  // namespace rondo::transport

#include "span.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "collective/link_failure.hpp"
#include "communicator_core.hpp"
#include "world_core.hpp"

namespace rondo::transport {
namespace {

// The label of a header: enough of the sequence that those in flight cannot be confused.
std::uint32_t label_of(std::uint64_t sequence) {
  return static_cast<std::uint32_t>(sequence & 0x3FFF'FFFFU);
}

bool shares_nodes(const WorldCore& world, const Group& group) {
  std::set<int> nodes;
  return std::ranges::any_of(group.members, [&](const Member& member) {
    return !nodes.insert(world.peer(member.world_rank).info.node).second;
  });
}

}  // namespace

Span::Span(const WorldCore& world, const Group& flat, const Channel& channel,
           std::shared_ptr<CommunicatorCore> down, std::shared_ptr<CommunicatorCore> up)
    : channel_(&channel),
      previous_((flat.index() + flat.count() - 1) % flat.count()),
      next_((flat.index() + 1) % flat.count()),
      shared_nodes_(shares_nodes(world, flat)),
      down_(std::move(down)),
      up_(std::move(up)) {}

void Span::announce(OperationRecord& record) const {
  HeaderExchange& header = record.header;
  header.mine = {.sequence = record.posted.sequence, .fingerprint = record.posted.fingerprint};
  header.sent.state = header.received.state = rondo_transfer_idle;
  const std::uint32_t label = label_of(record.posted.sequence);
  channel_->recv_labelled(previous_, MessageKind::header, label,
                          std::as_writable_bytes(std::span(&header.theirs, 1)), header.received);
  channel_->send_labelled(next_, MessageKind::header, label,
                          std::as_bytes(std::span(&header.mine, 1)), header.sent);
}

bool Span::heard(OperationRecord& record) const {
  throw_if_failed(*channel_, previous_, record.header.received);
  throw_if_failed(*channel_, next_, record.header.sent);
  return record.header.received.done() && record.header.sent.done();
}

void Span::forget(OperationRecord& record) const {
  channel_->cancel(previous_, record.header.received);
  channel_->cancel(next_, record.header.sent);
}

bool Span::waits_for(const OperationRecord& record, std::size_t member) const {
  return record.header.received.done() || member == previous_;
}

void Span::poison(const Error& error) {
  down_->poison(error);
  up_->poison(error);
}

}  // namespace rondo::transport

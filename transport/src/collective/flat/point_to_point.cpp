// Messages between two ranks. Blocks with gaps between their rows are packed before they are sent,
// and unpacked when they have been received; others are sent and received where they lie.

#include "collective/flat/point_to_point.hpp"

#include <span>

#include "collective/blocks.hpp"
#include "message/channel.hpp"

namespace rondo::transport {
namespace {

// Memory for what has gaps. Before anything is posted: what throws leaves nothing behind.
void make_room(Parts& parts) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Part& part = parts[i];
    part.sent.state = part.received.state = TransferState::idle;
    if (part.receives && !part.in.dense()) part.packed_in.resize(part.in.bytes());
    if (part.sends && !part.out.dense()) part.packed_out.resize(part.out.bytes());
  }
}

// The bytes to send.
std::span<const std::byte> outgoing(Team* team, Part& part) {
  if (part.out.dense()) return {part.out.data, part.out.bytes()};
  copy_from_rows(team, part.packed_out.data(), part.out, 0, part.out.bytes());
  return std::span(part.packed_out).first(part.out.bytes());
}

// Where to receive.
std::span<std::byte> incoming(Part& part) {
  if (part.in.dense()) return {part.in.data, part.in.bytes()};
  return std::span(part.packed_in).first(part.in.bytes());
}

// Does what is left to do for a received message. The message may be shorter than its receive.
void unpack(Team* team, Part& part) {
  if (part.signal != nullptr) *part.signal = part.value;
  if (!part.receives || part.in.dense()) return;
  copy_into_rows(team, part.in, 0, part.packed_in.data(), part.received.bytes);
}

}  // namespace

// Receives first: a message whose receive is posted is stored where it belongs at once.
PointToPoint::PointToPoint(const Group& group, Parts& parts)
    : channel_(group.channel), team_(group.team), parts_(&parts) {
  make_room(parts);
  try {
    post_all();
  } catch (...) {
    cancel_all();
    throw;
  }
}

void PointToPoint::post_all() {
  Parts& parts = *parts_;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Part& part = parts[i];
    if (part.receives) {
      channel_->recv_labelled(part.member, part.kind, part.in_label, incoming(part), part.received);
    }
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Part& part = parts[i];
    if (part.sends) {
      channel_->send_labelled(part.member, part.kind, part.out_label, outgoing(team_, part),
                              part.sent);
    }
  }
}

// The caller may have given the operation up: no link may refer to its parts any more.
PointToPoint::~PointToPoint() { cancel_all(); }

void PointToPoint::cancel_all() {
  for (std::size_t i = 0; i < parts_->size(); ++i) {
    Part& part = (*parts_)[i];
    channel_->cancel(part.member, part.received);
    channel_->cancel(part.member, part.sent);
  }
}

// Short sends often end while they are posted, and so do receives whose message was there.
bool PointToPoint::is_done() {
  for (std::size_t i = 0; i < parts_->size(); ++i) {
    const Part& part = (*parts_)[i];
    if (!(part.sent.done() || part.sent.idle()) ||
        !(part.received.done() || part.received.idle())) {
      return false;
    }
  }
  for (std::size_t i = 0; i < parts_->size(); ++i) unpack(team_, (*parts_)[i]);
  return true;
}

// A part that has failed ends the operation, whatever the parts before it still wait for.
Progress PointToPoint::step(Group& /*group*/, const Posted& /*posted*/) {
  bool pending = false;
  for (std::size_t i = 0; i < parts_->size(); ++i) {
    Part& part = (*parts_)[i];
    throw_if_failed(*channel_, part.member, part.sent);
    throw_if_failed(*channel_, part.member, part.received);
    pending = pending || part.sent.pending() || part.received.pending();
  }
  if (pending) return Progress::idle;
  for (std::size_t i = 0; i < parts_->size(); ++i) unpack(team_, (*parts_)[i]);
  return Progress::done;
}

bool PointToPoint::waits_for(const Group& /*group*/, std::size_t member) const {
  for (std::size_t i = 0; i < parts_->size(); ++i) {
    const Part& part = (*parts_)[i];
    if (part.member == member && (part.sent.pending() || part.received.pending())) return true;
  }
  return false;
}

}  // namespace rondo::transport

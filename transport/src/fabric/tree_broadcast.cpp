#include "fabric/tree_broadcast.hpp"

#include <algorithm>

namespace rondo::transport {

TreeBroadcast::TreeBroadcast(Group& group, const Posted& posted)
    : tree_(group.index(), static_cast<std::size_t>(posted.fingerprint.root), group.count()),
      children_(tree_.children()),
      bytes_(posted.output.bytes()),
      segments_(bytes_, group.segment_bytes) {
  if (tree_.is_root()) receives_posted_ = received_ = segments_.count();
}

Progress TreeBroadcast::step(Group& group, const Posted& posted) {
  bool moved = !tree_.is_root() && receive(group, posted);
  moved = pass_on(group, posted) || moved;
  const bool copied = tree_.is_root() && own_.step(posted.output, posted.input);
  if (copied || sends_ended_ < segments_.count()) {
    return moved || copied ? Progress::moved : Progress::idle;
  }
  return Progress::done;
}

bool TreeBroadcast::receive(Group& group, const Posted& posted) {
  bool moved = false;
  while (received_ < receives_posted_ && receives_[received_ % segment_window].ended()) {
    received_ += 1;
    moved = true;
  }
  while (receives_posted_ < segments_.count() && receives_posted_ < received_ + segment_window) {
    const Range range = segments_.range(receives_posted_, bytes_);
    receives_[receives_posted_ % segment_window].receive(
        *group.channel, tree_.parent(), posted.sequence, 0,
        {posted.output.data + range.begin, range.size()});
    receives_posted_ += 1;
    moved = true;
  }
  return moved;
}

bool TreeBroadcast::pass_on(Group& group, const Posted& posted) {
  bool moved = false;
  while (sends_ended_ < sends_posted_ && all_ended(sends_[sends_ended_ % segment_window])) {
    sends_ended_ += 1;
    moved = true;
  }
  const std::byte* data = tree_.is_root() ? posted.input.data : posted.output.data;
  while (sends_posted_ < received_ && sends_posted_ < sends_ended_ + segment_window) {
    const Range range = segments_.range(sends_posted_, bytes_);
    for (std::size_t i = children_; i-- > 0;) {
      sends_[sends_posted_ % segment_window][i].send(
          *group.channel, tree_.child(i), posted.sequence, 0, {data + range.begin, range.size()});
    }
    sends_posted_ += 1;
    moved = true;
  }
  return moved;
}

bool TreeBroadcast::waits_for(const Group& /*group*/, std::size_t member) const {
  return any_waits_for(receives_, member) ||
         std::ranges::any_of(
             sends_, [member](const auto& segment) { return any_waits_for(segment, member); });
}

}  // namespace rondo::transport

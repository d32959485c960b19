#include "fabric/tree_reduce.hpp"

namespace rondo::transport {

TreeReduce::TreeReduce(Group& group, const Posted& posted)
    : reduce_(find_reduction(posted.fingerprint.type, posted.fingerprint.op)),
      tree_(group.index(), static_cast<std::size_t>(posted.fingerprint.root), group.count()),
      children_(tree_.children()),
      bytes_(posted.input.bytes()),
      segments_(bytes_, group.segment_bytes),
      end_(segments_.count() * children_) {
  if (end_ > 0) scratch_ = group.scratch.take(2 * segment_window * segments_.segment_bytes());
}

std::byte* TreeReduce::slot(std::size_t index) const noexcept {
  return scratch_.data() + index * segments_.segment_bytes();
}

// Where a segment is summed up.
std::byte* TreeReduce::sum_of(const Posted& posted, std::size_t segment) const noexcept {
  if (tree_.is_root()) return posted.output.data + segments_.range(segment, bytes_).begin;
  return slot(segment_window + segment % segment_window);
}

Progress TreeReduce::step(Group& group, const Posted& posted) {
  bool moved = end_sends();
  moved = post_receives(group, posted) || moved;
  moved = join_one(posted) || moved;
  moved = (!tree_.is_root() && post_sends(group, posted)) || moved;
  const bool copied = group.count() == 1 && own_.step(posted.output, posted.input);
  const bool sent = tree_.is_root() || sends_ended_ == segments_.count();
  if (copied || !sent || joined_ < end_) {
    return moved || copied ? Progress::moved : Progress::idle;
  }
  return Progress::done;
}

bool TreeReduce::end_sends() {
  bool moved = false;
  while (sends_ended_ < sends_posted_ && sends_[sends_ended_ % segment_window].ended()) {
    sends_ended_ += 1;
    moved = true;
  }
  return moved;
}

bool TreeReduce::post_receives(Group& group, const Posted& posted) {
  bool moved = false;
  while (receives_posted_ < end_ && receives_posted_ < joined_ + segment_window) {
    const std::size_t index = receives_posted_ % segment_window;
    const std::size_t bytes = segments_.range(receives_posted_ / children_, bytes_).size();
    receives_[index].receive(*group.channel, tree_.child(receives_posted_ % children_),
                             posted.sequence, 0, {slot(index), bytes});
    receives_posted_ += 1;
    moved = true;
  }
  return moved;
}

bool TreeReduce::join_one(const Posted& posted) {
  if (joined_ == receives_posted_) return false;
  const std::size_t segment = joined_ / children_;
  // Has the sum that lay there before been sent?
  if (!tree_.is_root() && segment >= sends_ended_ + segment_window) return false;
  const std::size_t index = joined_ % segment_window;
  if (!receives_[index].ended()) return false;
  const Range range = segments_.range(segment, bytes_);
  const bool first = joined_ % children_ == 0;
  std::byte* const sum = sum_of(posted, segment);
  const std::byte* const sources[] = {first ? posted.input.data + range.begin : sum, slot(index)};
  reduce_(sources, 2, &sum, 1, 0, range.size() / size_of(posted.fingerprint.type));
  joined_ += 1;
  return true;
}

bool TreeReduce::post_sends(Group& group, const Posted& posted) {
  bool moved = false;
  const std::size_t ready = children_ == 0 ? segments_.count() : joined_ / children_;
  while (sends_posted_ < ready && sends_posted_ < sends_ended_ + segment_window) {
    const Range range = segments_.range(sends_posted_, bytes_);
    const std::byte* data =
        children_ == 0 ? posted.input.data + range.begin : sum_of(posted, sends_posted_);
    sends_[sends_posted_ % segment_window].send(*group.channel, tree_.parent(), posted.sequence, 0,
                                                {data, range.size()});
    sends_posted_ += 1;
    moved = true;
  }
  return moved;
}

bool TreeReduce::waits_for(const Group& /*group*/, std::size_t member) const {
  return any_waits_for(receives_, member) || any_waits_for(sends_, member);
}

}  // namespace rondo::transport

// Broadcast and reduce over a binomial tree (see Binomial in collective/flat/schedules.hpp), in
// log2 P hops. Data goes segment by segment, a window of segments at a time, so that all ranks on
// the way are busy at once. When a group has one rank, the root copies its input.

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "collective/algorithms.hpp"
#include "collective/blocks.hpp"
#include "collective/flat/schedules.hpp"
#include "message/channel.hpp"
#include "reduce/reduce.hpp"

namespace rondo::transport {
namespace {

using schedule::segment_window;
using schedule::Segments;

// Broadcast: a rank passes a segment on to its children, the largest subtree first, as soon as it
// has it. It sends n bytes to each child, of which it has up to log2 P. Segments are received
// where they belong, and sent from there.
class TreeBroadcast final : public Operation {
 public:
  TreeBroadcast(Group& group, const Posted& posted);
  Progress step(Group& group, const Posted& posted) override;
  [[nodiscard]] bool waits_for(const Group& group, std::size_t member) const override;

 private:
  static constexpr std::size_t most_children = 16;  // of 65536 ranks

  bool receive(Group& group, const Posted& posted);
  bool pass_on(Group& group, const Posted& posted);

  schedule::Binomial tree_;
  std::size_t children_;
  std::size_t bytes_;
  Segments segments_;
  OwnCopy own_;

  // Segments below these are being received, are here, are being passed on, are passed on.
  std::size_t receives_posted_ = 0;
  std::size_t received_ = 0;
  std::size_t sends_posted_ = 0;
  std::size_t sends_ended_ = 0;
  std::array<Message, segment_window> receives_;
  std::array<std::array<Message, most_children>, segment_window> sends_;
};

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
  const bool copied = tree_.is_root() && own_.step(group.team, posted.output, posted.input);
  if (copied || sends_ended_ < segments_.count()) {
    return moved || copied ? Progress::moved : Progress::idle;
  }
  return Progress::done;
}

// Posts the receives of a window of segments ahead of their arrival.
bool TreeBroadcast::receive(Group& group, const Posted& posted) {
  bool moved = count_ended(receives_, segment_window, receives_posted_, received_);
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

// Sends a segment that is here to all children. A window entry is free when all of them have it.
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

// Reduce: a rank joins a segment of its own data with those of its children, in order, and passes
// the sum on to its parent. Every rank but the root sends n bytes. The order of summation is that
// of the ranks from the root on, whatever comes first. Only the root's output is used.
//
// Messages from children are numbered: all children's segment 0, then all their segment 1, and
// so on. They are received into the slots of a window, joined in this order, and the sums kept in
// a second window until they are sent.
class TreeReduce final : public Operation {
 public:
  TreeReduce(Group& group, const Posted& posted);
  Progress step(Group& group, const Posted& posted) override;
  [[nodiscard]] bool waits_for(const Group& /*group*/, std::size_t member) const override {
    return any_waits_for(receives_, member) || any_waits_for(sends_, member);
  }

 private:
  bool post_receives(Group& group, const Posted& posted);
  bool join_one(const Group& group, const Posted& posted);
  bool post_sends(Group& group, const Posted& posted);
  [[nodiscard]] std::byte* slot(std::size_t index) const noexcept;
  [[nodiscard]] std::byte* sum_of(const Posted& posted, std::size_t segment) const noexcept;

  Reduction reduce_;
  schedule::Binomial tree_;
  std::size_t children_;
  std::size_t bytes_;
  Segments segments_;
  std::size_t end_;  // messages from children
  std::span<std::byte> scratch_;
  OwnCopy own_;

  // Messages below these numbers are being received, are received and joined.
  std::size_t receives_posted_ = 0;
  std::size_t joined_ = 0;
  // Segments below these are being sent to the parent, are sent.
  std::size_t sends_posted_ = 0;
  std::size_t sends_ended_ = 0;
  std::array<Message, segment_window> receives_;
  std::array<Message, segment_window> sends_;
};

TreeReduce::TreeReduce(Group& group, const Posted& posted)
    : reduce_(find_partial_reduction(posted.fingerprint.type, posted.fingerprint.op)),
      tree_(group.index(), static_cast<std::size_t>(posted.fingerprint.root), group.count()),
      children_(tree_.children()),
      bytes_(posted.input.bytes()),
      segments_(bytes_, group.segment_bytes),
      end_(segments_.count() * children_) {
  if (end_ > 0) scratch_ = group.scratch.take(2 * segment_window * segments_.longest_in(bytes_));
}

std::byte* TreeReduce::slot(std::size_t index) const noexcept {
  return scratch_.data() + index * segments_.longest_in(bytes_);
}

// Where the sum of a segment is built up: the root uses its output.
std::byte* TreeReduce::sum_of(const Posted& posted, std::size_t segment) const noexcept {
  if (tree_.is_root()) return posted.output.data + segments_.range(segment, bytes_).begin;
  return slot(segment_window + segment % segment_window);
}

Progress TreeReduce::step(Group& group, const Posted& posted) {
  bool moved = count_ended(sends_, segment_window, sends_posted_, sends_ended_);
  moved = post_receives(group, posted) || moved;
  moved = join_one(group, posted) || moved;
  moved = (!tree_.is_root() && post_sends(group, posted)) || moved;
  const bool copied = group.count() == 1 && own_.step(group.team, posted.output, posted.input);
  const bool sent = tree_.is_root() || sends_ended_ == segments_.count();
  if (copied || !sent || joined_ < end_) {
    return moved || copied ? Progress::moved : Progress::idle;
  }
  return Progress::done;
}

// Posts the receives of a window of messages from children ahead of their arrival.
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

// Joins the next message in the order of the numbers, whatever came first: so the order of
// summation is fixed.
bool TreeReduce::join_one(const Group& group, const Posted& posted) {
  if (joined_ == receives_posted_) return false;
  const std::size_t segment = joined_ / children_;
  // The slot of the sum is free when the sum that was there before has been sent.
  if (!tree_.is_root() && segment >= sends_ended_ + segment_window) return false;
  const std::size_t index = joined_ % segment_window;
  if (!receives_[index].ended()) return false;
  const Range range = segments_.range(segment, bytes_);
  const bool first = joined_ % children_ == 0;
  std::byte* const sum = sum_of(posted, segment);
  const std::byte* const sources[] = {first ? posted.input.data + range.begin : sum, slot(index)};
  const std::size_t element_bytes = size_of(posted.fingerprint.type);
  for_parts(group.team, range.size(), [&](const TeamPart& part) {
    reduce_(sources, 2, &sum, 1, part.begin / element_bytes, part.end / element_bytes);
  });
  joined_ += 1;
  return true;
}

// A rank without children sends its input; others the segments whose sums are complete.
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

}  // namespace

constexpr Algorithm algorithms::tree_broadcast =
    algorithm_of<TreeBroadcast>(Protocol::links, &is_one_of<shm::Collective::broadcast>);

constexpr Algorithm algorithms::tree_reduce =
    algorithm_of<TreeReduce>(Protocol::links, &is_one_of<shm::Collective::reduce>);

}  // namespace rondo::transport

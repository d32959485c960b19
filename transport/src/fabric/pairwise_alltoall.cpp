#include "fabric/pairwise_alltoall.hpp"

#include <cstring>

#include "fabric/pairwise_schedule.hpp"
#include "node/rows.hpp"

namespace rondo::transport {
PairwiseAlltoall::PairwiseAlltoall(Group& group, const Posted& posted)
    : part_bytes_(posted.input.bytes() / group.count()),
      segments_(part_bytes_, group.segment_bytes),
      end_(segments_.count() * schedule::pairwise_rounds(group.count())),
      in_place_(posted.input.data == posted.output.data) {
  if (in_place_ && end_ > 0) scratch_ = group.scratch.take(window * segments_.segment_bytes());
}

PairwiseAlltoall::Swap PairwiseAlltoall::swap_of(const Group& group,
                                                 std::size_t number) const noexcept {
  const std::size_t partner =
      schedule::pairwise_partner(group.index(), group.count(), number / segments_.count());
  const Range range = segments_.range(number % segments_.count(), part_bytes_);
  const std::size_t begin = partner * part_bytes_;
  return {.partner = partner, .bytes = {begin + range.begin, begin + range.end}};
}

std::span<std::byte> PairwiseAlltoall::target(const Posted& posted, std::size_t number,
                                              const Range& bytes) const noexcept {
  if (!in_place_) return {posted.output.data + bytes.begin, bytes.size()};
  return scratch_.subspan(number % window * segments_.segment_bytes(), bytes.size());
}

Progress PairwiseAlltoall::step(Group& group, const Posted& posted) {
  bool moved = finish(group, posted);
  moved = post(group, posted) || moved;
  const bool copied = own_.step(part_of(posted.output, group.index() * part_bytes_, part_bytes_),
                                part_of(posted.input, group.index() * part_bytes_, part_bytes_));
  if (copied || finished_ < end_) return moved || copied ? Progress::moved : Progress::idle;
  return Progress::done;
}

bool PairwiseAlltoall::post(Group& group, const Posted& posted) {
  bool moved = false;
  for (; posted_ < end_ && posted_ < finished_ + window; ++posted_) {
    moved = true;
    const Swap swap = swap_of(group, posted_);
    if (swap.partner == group.index()) continue;
    receives_[posted_ % window].receive(*group.channel, swap.partner, posted.sequence, 0,
                                        target(posted, posted_, swap.bytes));
    sends_[posted_ % window].send(*group.channel, swap.partner, posted.sequence, 0,
                                  {posted.input.data + swap.bytes.begin, swap.bytes.size()});
  }
  return moved;
}

// In place at most one segment is put where it belongs: that is where the work is.
bool PairwiseAlltoall::finish(const Group& group, const Posted& posted) {
  bool moved = false;
  while (finished_ < posted_ && receives_[finished_ % window].ended() &&
         sends_[finished_ % window].ended()) {
    const Swap swap = swap_of(group, finished_);
    const std::size_t number = finished_;
    finished_ += 1;
    moved = true;
    if (!in_place_ || swap.partner == group.index()) continue;
    std::memcpy(posted.output.data + swap.bytes.begin, target(posted, number, swap.bytes).data(),
                swap.bytes.size());
    break;
  }
  return moved;
}

bool PairwiseAlltoall::waits_for(const Group& /*group*/, std::size_t member) const {
  return any_waits_for(receives_, member) || any_waits_for(sends_, member);
}

}  // namespace rondo::transport

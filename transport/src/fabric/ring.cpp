#include "fabric/ring.hpp"

#include <algorithm>

#include "fabric/ring_schedule.hpp"
#include "node/rows.hpp"

namespace rondo::transport {
namespace {

// The bytes of `range` where they lie, when they lie together.
template <typename AnyBlock>
auto span_of(const AnyBlock& block, const Range& range) {
  return std::span(block.data + range.begin, range.size());
}

}  // namespace

RingOperation::RingOperation(Group& group, const Posted& posted, RingHalves halves,
                             std::size_t longest_chunk)
    : reduce_(find_reduction(posted.fingerprint.type, posted.fingerprint.op)),
      half_(schedule::ring_half(group.count())),
      first_step_(halves == RingHalves::allgather ? half_ : 0),
      steps_(halves == RingHalves::both ? 2 * half_ : half_),
      copies_own_(halves == RingHalves::allgather || group.count() == 1),
      segments_(longest_chunk, group.segment_bytes),
      lanes_(std::clamp<std::size_t>(segments_.count(), 1, segment_window)),
      end_((segments_.count() + lanes_ - 1) / lanes_ * lanes_ * steps_) {
  if (end_ > 0) scratch_ = group.scratch.take(2 * lanes_ * segments_.segment_bytes());
}

RingOperation::Item RingOperation::item(std::uint64_t number) const noexcept {
  const std::uint64_t block = number / (lanes_ * steps_);
  return {.step = first_step_ + number / lanes_ % steps_,
          .segment = block * lanes_ + number % lanes_};
}

std::span<std::byte> RingOperation::slot(std::uint64_t number, std::size_t bytes) const noexcept {
  const std::size_t index = number % (2 * lanes_);
  return scratch_.subspan(index * segments_.segment_bytes(), bytes);
}

// Joins at most one segment: that is where the work is.
Progress RingOperation::step(Group& group, const Posted& posted) {
  bool moved = end_sends();
  moved = post_receives(group, posted) || moved;
  moved = take_received(group, posted) || moved;
  moved = post_sends(group, posted) || moved;
  const bool copied = copy_own(group, posted);
  if (copied || sends_ended_ < end_ || received_ < end_) {
    return moved || copied ? Progress::moved : Progress::idle;
  }
  return Progress::done;
}

bool RingOperation::end_sends() {
  bool moved = false;
  while (sends_ended_ < sends_posted_ && sends_[sends_ended_ % lanes_].ended()) {
    sends_ended_ += 1;
    moved = true;
  }
  return moved;
}

bool RingOperation::post_sends(Group& group, const Posted& posted) {
  bool moved = false;
  for (; sends_posted_ < end_; ++sends_posted_) {
    if (sends_posted_ >= sends_ended_ + lanes_ || sends_posted_ >= received_ + lanes_) break;
    const std::span<const std::byte> data = source(group, posted, sends_posted_);
    if (!data.empty()) {
      sends_[sends_posted_ % lanes_].send(*group.channel,
                                          schedule::right_of(group.index(), group.count()),
                                          posted.sequence, 0, data);
    }
    moved = true;
  }
  return moved;
}

bool RingOperation::post_receives(Group& group, const Posted& posted) {
  bool moved = false;
  for (; receives_posted_ < end_; ++receives_posted_) {
    if (receives_posted_ >= received_ + lanes_ || receives_posted_ >= sends_ended_ + lanes_) break;
    const std::span<std::byte> into = target(group, posted, receives_posted_);
    if (!into.empty()) {
      receives_[receives_posted_ % lanes_].receive(*group.channel,
                                                   schedule::left_of(group.index(), group.count()),
                                                   posted.sequence, 0, into);
    }
    moved = true;
  }
  return moved;
}

bool RingOperation::take_received(Group& group, const Posted& posted) {
  bool moved = false;
  while (received_ < receives_posted_ && receives_[received_ % lanes_].ended()) {
    const std::span<std::byte> into = target(group, posted, received_);
    const Item at = item(received_);
    received_ += 1;
    moved = true;
    if (into.empty()) continue;
    if (reduces(at.step)) {
      join(group, posted, at, into);
      break;
    }
    const std::size_t chunk =
        schedule::ring_step(group.index(), group.count(), at.step).receive_chunk;
    const Block block = result(group, posted, chunk);
    if (block.dense()) continue;  // that is where it was received
    copy_into_rows(block, segments_.range(at.segment, block.bytes()).begin, into.data(),
                   into.size());
    break;
  }
  return moved;
}

// Of a partial sum the last join is stored where the result goes, the others where they are.
void RingOperation::join(const Group& group, const Posted& posted, const Item& at,
                         std::span<std::byte> partial) {
  const std::size_t chunk =
      schedule::ring_step(group.index(), group.count(), at.step).receive_chunk;
  const ConstBlock own = given(group, posted, chunk);
  const std::size_t begin = segments_.range(at.segment, own.bytes()).begin;
  const bool last = at.step + 1 == half_;
  const Block block = last ? result(group, posted, chunk) : Block{};
  std::byte* into = last && block.dense() ? block.data + begin : partial.data();
  const std::size_t element_bytes = size_of(posted.fingerprint.type);
  const std::size_t run = own.dense() ? own.bytes() : own.row_bytes;
  for_each_run(run, begin, partial.size(),
               [&](std::size_t row, std::size_t column, std::size_t done, std::size_t length) {
                 const std::byte* const sources[] = {partial.data() + done,
                                                     own.data + row * own.stride_bytes + column};
                 std::byte* const destination = into + done;
                 reduce_(sources, 2, &destination, 1, 0, length / element_bytes);
               });
  if (last && !block.dense()) copy_into_rows(block, begin, partial.data(), partial.size());
}

bool RingOperation::copy_own(const Group& group, const Posted& posted) {
  if (!copies_own_) return false;
  return own_.step(result(group, posted, group.index()), given(group, posted, group.index()));
}

// What begins its way here is sent from where it lies, or packed; the slot of message k - L is
// free for that, as that message was the last of its chunk. What goes on is sent from where it
// was received.
std::span<const std::byte> RingOperation::source(const Group& group, const Posted& posted,
                                                 std::uint64_t number) const {
  const Item at = item(number);
  const std::size_t chunk = schedule::ring_step(group.index(), group.count(), at.step).send_chunk;
  if (at.step == first_step_) {
    const ConstBlock own = given(group, posted, chunk);
    const Range range = segments_.range(at.segment, own.bytes());
    if (own.dense()) return span_of(own, range);
    const std::span<std::byte> packed = slot(number + lanes_, range.size());
    copy_from_rows(packed.data(), own, range.begin, range.size());
    return packed;
  }
  if (reduces(at.step)) {
    const ConstBlock own = given(group, posted, chunk);
    return slot(number - lanes_, segments_.range(at.segment, own.bytes()).size());
  }
  const Block block = result(group, posted, chunk);
  const Range range = segments_.range(at.segment, block.bytes());
  if (block.dense()) return span_of(block, range);
  return slot(number - lanes_, range.size());
}

std::span<std::byte> RingOperation::target(const Group& group, const Posted& posted,
                                           std::uint64_t number) const {
  const Item at = item(number);
  const std::size_t chunk =
      schedule::ring_step(group.index(), group.count(), at.step).receive_chunk;
  if (reduces(at.step)) {
    const std::size_t bytes = given(group, posted, chunk).bytes();
    return slot(number, segments_.range(at.segment, bytes).size());
  }
  const Block block = result(group, posted, chunk);
  const Range range = segments_.range(at.segment, block.bytes());
  if (block.dense()) return span_of(block, range);
  return slot(number, range.size());
}

bool RingOperation::waits_for(const Group& /*group*/, std::size_t member) const {
  return any_waits_for(receives_, member) || any_waits_for(sends_, member);
}

}  // namespace rondo::transport

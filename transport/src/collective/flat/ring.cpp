// Allreduce, reduce_scatter and allgather over a ring (see Ring in collective/flat/schedules.hpp).
//
// An allreduce takes both halves of the schedule, 2 (P-1) steps, and sends 2 (P-1)/P n bytes per
// rank, the least possible; a reduce_scatter takes the first half, and an allgather the second.
// Its chunks are even parts of the data; those of the other two are the ranks' shares. Every
// element is computed once, so all ranks get the same bits. bf16 is rounded at every rank that a
// sum passes.
//
// Every chunk is cut into segments, and the segments of all chunks into blocks of up to
// segment_window each, its lanes. The ring's steps are taken block by block, and within a step
// lane by lane; the messages in that order are numbered, alike on all ranks. With L lanes:
//
// - message k is sent when that of a step ago, k - L, has been received and joined, and less
//   than L are being sent;
// - the receive of message k is posted, ahead of its arrival, when message k - L is sent and
//   received.
//
// As each waits only for smaller numbers, and ends when the neighbours have come as far, the
// ring cannot stall. Partial sums live in 2 L slots of scratch, so that the input is never
// written to and the output only with what is final. The sum over a chunk goes in ring order,
// beginning right of the rank that it ends at.

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "base/cache_line.hpp"
#include "collective/algorithms.hpp"
#include "collective/blocks.hpp"
#include "collective/flat/schedules.hpp"
#include "message/channel.hpp"
#include "reduce/reduce.hpp"

namespace rondo::transport {
namespace {

using schedule::segment_window;
using schedule::Segments;
using shm::Collective;

class Ring final : public Operation {
 public:
  Ring(Group& group, const Posted& posted);
  Progress step(Group& group, const Posted& posted) override;
  [[nodiscard]] bool waits_for(const Group& /*group*/, std::size_t member) const override {
    return any_waits_for(receives_, member) || any_waits_for(sends_, member);
  }

 private:
  // A message, by its number.
  struct Item {
    std::size_t step = 0;
    std::size_t segment = 0;
    std::size_t send_chunk = 0;
    std::size_t receive_chunk = 0;
  };
  [[nodiscard]] Item item(const Group& group, std::size_t number) const noexcept;
  [[nodiscard]] bool reduces(std::size_t step) const noexcept { return step < half_; }
  [[nodiscard]] std::span<std::byte> slot(std::size_t number, std::size_t bytes) const noexcept;

  [[nodiscard]] static std::size_t longest_chunk(const Group& group, const Posted& posted) noexcept;
  [[nodiscard]] static ConstBlock input_of(const Group& group, const Posted& posted,
                                           std::size_t chunk) noexcept;
  [[nodiscard]] static Block output_of(const Group& group, const Posted& posted,
                                       std::size_t chunk) noexcept;

  bool post_sends(Group& group, const Posted& posted);
  bool post_receives(Group& group, const Posted& posted);
  bool use_received(Group& group, const Posted& posted);
  void join(const Group& group, const Posted& posted, const Item& at, std::span<std::byte> partial);
  bool copy_own(const Group& group, const Posted& posted);

  [[nodiscard]] std::span<const std::byte> source(const Group& group, const Posted& posted,
                                                  std::size_t number) const;
  [[nodiscard]] std::span<std::byte> target(const Group& group, const Posted& posted,
                                            std::size_t number) const;

  Reduction reduce_;
  std::size_t half_;
  std::size_t first_step_;
  std::size_t steps_;
  bool copies_own_;
  Segments segments_;
  std::size_t lanes_;
  std::size_t end_;
  std::size_t slot_bytes_;
  std::span<std::byte> scratch_;
  OwnCopy own_;

  // Messages below these numbers are being sent, are sent, are being received, are received.
  std::size_t sends_posted_ = 0;
  std::size_t sends_ended_ = 0;
  std::size_t receives_posted_ = 0;
  std::size_t received_ = 0;
  std::array<Message, segment_window> sends_;
  std::array<Message, segment_window> receives_;
};

// The bytes of `range` where they lie, when they lie together.
template <typename AnyBlock>
auto span_of(const AnyBlock& block, const Range& range) {
  return std::span(block.data + range.begin, range.size());
}

Ring::Ring(Group& group, const Posted& posted)
    : reduce_(find_partial_reduction(posted.fingerprint.type, posted.fingerprint.op)),
      half_(schedule::ring_half(group.count())),
      first_step_(posted.fingerprint.collective == Collective::allgather ? half_ : 0),
      steps_(posted.fingerprint.collective == Collective::allreduce ? 2 * half_ : half_),
      copies_own_(posted.fingerprint.collective == Collective::allgather || group.count() == 1),
      segments_(longest_chunk(group, posted), group.segment_bytes),
      lanes_(std::clamp<std::size_t>(segments_.count(), 1, segment_window)),
      end_(round_up(segments_.count(), lanes_) * steps_),
      slot_bytes_(segments_.longest_in(longest_chunk(group, posted))) {
  // An allgather without gaps sends from where its data lies, and receives where it belongs.
  const bool uses_slots = posted.fingerprint.collective != Collective::allgather ||
                          posted.input.rows > 1 || posted.output.rows > 1;
  if (end_ > 0 && uses_slots) scratch_ = group.scratch.take(2 * lanes_ * slot_bytes_);
}

// The same on all ranks.
std::size_t Ring::longest_chunk(const Group& group, const Posted& posted) noexcept {
  if (posted.fingerprint.collective == Collective::allreduce) {
    std::size_t longest = 0;
    for (std::size_t chunk = 0; chunk < group.count(); ++chunk) {
      longest = std::max(longest,
                         schedule::ring_chunk(posted.input.bytes(), group.count(), chunk).size());
    }
    return longest;
  }
  std::size_t longest_row = 0;
  for (std::size_t chunk = 0; chunk < group.count(); ++chunk) {
    longest_row = std::max(longest_row, posted.share_row_bytes(chunk));
  }
  return longest_row * posted.input.rows;
}

// This rank's part of a chunk. An allgather asks only for its own share.
ConstBlock Ring::input_of(const Group& group, const Posted& posted, std::size_t chunk) noexcept {
  switch (posted.fingerprint.collective) {
    case Collective::allreduce:
      return part_of(posted.input,
                     schedule::ring_chunk(posted.input.bytes(), group.count(), chunk));
    case Collective::reduce_scatter:
      return column_of(posted.input, posted, chunk);
    default:
      return posted.input;
  }
}

// Where a chunk goes when it is finished. A reduce_scatter asks only for its own chunk. The chunks
// of a hierarchical allgather need not lie side by side.
Block Ring::output_of(const Group& group, const Posted& posted, std::size_t chunk) noexcept {
  switch (posted.fingerprint.collective) {
    case Collective::allreduce:
      return part_of(posted.output,
                     schedule::ring_chunk(posted.output.bytes(), group.count(), chunk));
    case Collective::allgather: {
      if (posted.received_at.empty()) return column_of(posted.output, posted, chunk);
      const std::size_t begin = posted.received_at[chunk];
      return part_of(posted.output, {begin, begin + posted.row_bytes_of[chunk]});
    }
    default:
      return posted.output;
  }
}

Ring::Item Ring::item(const Group& group, std::size_t number) const noexcept {
  const std::size_t block = number / (lanes_ * steps_);
  const std::size_t step = first_step_ + number / lanes_ % steps_;
  const schedule::RingStep chunks = schedule::ring_step(group.index(), group.count(), step);
  return {.step = step,
          .segment = block * lanes_ + number % lanes_,
          .send_chunk = chunks.send_chunk,
          .receive_chunk = chunks.receive_chunk};
}

std::span<std::byte> Ring::slot(std::size_t number, std::size_t bytes) const noexcept {
  const std::size_t index = number % (2 * lanes_);
  return scratch_.subspan(index * slot_bytes_, bytes);
}

// Joins at most one segment: that is where the work is.
Progress Ring::step(Group& group, const Posted& posted) {
  bool moved = count_ended(sends_, lanes_, sends_posted_, sends_ended_);
  moved = post_receives(group, posted) || moved;
  moved = use_received(group, posted) || moved;
  moved = post_sends(group, posted) || moved;
  const bool copied = copy_own(group, posted);
  if (copied || sends_ended_ < end_ || received_ < end_) {
    return moved || copied ? Progress::moved : Progress::idle;
  }
  return Progress::done;
}

bool Ring::post_sends(Group& group, const Posted& posted) {
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

bool Ring::post_receives(Group& group, const Posted& posted) {
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

// Joins what was received with this rank's part, or copies it out of scratch.
bool Ring::use_received(Group& group, const Posted& posted) {
  bool moved = false;
  while (received_ < receives_posted_ && receives_[received_ % lanes_].ended()) {
    const std::span<std::byte> into = target(group, posted, received_);
    const Item at = item(group, received_);
    received_ += 1;
    moved = true;
    if (into.empty()) continue;
    if (reduces(at.step)) {
      join(group, posted, at, into);
      break;
    }
    const Block block = output_of(group, posted, at.receive_chunk);
    if (block.dense()) continue;  // it was received where it belongs
    copy_into_rows(group.team, block, segments_.range(at.segment, block.bytes()).begin, into.data(),
                   into.size());
    break;
  }
  return moved;
}

// The last join of a chunk is stored in the output; the sums before it stay in their slot.
void Ring::join(const Group& group, const Posted& posted, const Item& at,
                std::span<std::byte> partial) {
  const ConstBlock own = input_of(group, posted, at.receive_chunk);
  const std::size_t begin = segments_.range(at.segment, own.bytes()).begin;
  const bool last = at.step + 1 == half_;
  const Block block = last ? output_of(group, posted, at.receive_chunk) : Block{};
  std::byte* into = last && block.dense() ? block.data + begin : partial.data();
  const std::size_t element_bytes = size_of(posted.fingerprint.type);
  const std::size_t run = own.dense() ? own.bytes() : own.row_bytes;
  for_parts(group.team, partial.size(), [&](const TeamPart& part) {
    for_each_run(run, begin + part.begin, part.size(),
                 [&](std::size_t row, std::size_t column, std::size_t done, std::size_t length) {
                   const std::size_t at_byte = part.begin + done;
                   const std::byte* const sources[] = {partial.data() + at_byte,
                                                       own.data + row * own.stride_bytes + column};
                   std::byte* const destination = into + at_byte;
                   reduce_(sources, 2, &destination, 1, 0, length / element_bytes);
                 });
    if (last && !block.dense()) {
      copy_into_rows(nullptr, block, begin + part.begin, partial.data() + part.begin, part.size());
    }
  });
}

bool Ring::copy_own(const Group& group, const Posted& posted) {
  if (!copies_own_) return false;
  return own_.step(group.team, output_of(group, posted, group.index()),
                   input_of(group, posted, group.index()));
}

// The data of message `number`. In the first step that is this rank's own chunk, sent from the
// input; rows with gaps are packed into a slot. The slot of message k - L is free, because that
// message was the last of its chunk. Later steps send what was received a step ago: a partial sum
// from its slot, a finished chunk from the output (from its slot where the output has gaps).
std::span<const std::byte> Ring::source(const Group& group, const Posted& posted,
                                        std::size_t number) const {
  const Item at = item(group, number);
  if (at.step == first_step_) {
    const ConstBlock own = input_of(group, posted, at.send_chunk);
    const Range range = segments_.range(at.segment, own.bytes());
    if (own.dense()) return span_of(own, range);
    const std::span<std::byte> packed = slot(number + lanes_, range.size());
    copy_from_rows(group.team, packed.data(), own, range.begin, range.size());
    return packed;
  }
  if (reduces(at.step)) {
    const std::size_t bytes = input_of(group, posted, at.send_chunk).bytes();
    return slot(number - lanes_, segments_.range(at.segment, bytes).size());
  }
  const Block block = output_of(group, posted, at.send_chunk);
  const Range range = segments_.range(at.segment, block.bytes());
  if (block.dense()) return span_of(block, range);
  return slot(number - lanes_, range.size());
}

// Where message `number` is received: a partial sum in its slot, a finished chunk in the output (in
// its slot where the output has gaps).
std::span<std::byte> Ring::target(const Group& group, const Posted& posted,
                                  std::size_t number) const {
  const Item at = item(group, number);
  if (reduces(at.step)) {
    const std::size_t bytes = input_of(group, posted, at.receive_chunk).bytes();
    return slot(number, segments_.range(at.segment, bytes).size());
  }
  const Block block = output_of(group, posted, at.receive_chunk);
  const Range range = segments_.range(at.segment, block.bytes());
  if (block.dense()) return span_of(block, range);
  return slot(number, range.size());
}

}  // namespace

// It runs the allreduces that the algorithms before it in the list leave.
constexpr Algorithm algorithms::ring = algorithm_of<Ring>(
    Protocol::links,
    &is_one_of<Collective::allreduce, Collective::reduce_scatter, Collective::allgather>);

}  // namespace rondo::transport

// Gather, scatter and alltoallv: every rank has a part of its own length for some of the others.
//
// These run by messages inside a node, too: the link over shared memory reads a part straight out
// of its sender's arena, and what ranks compare before an operation begins does not have everyone's
// lengths. In round k a rank sends to the rank k places after it and receives from the rank k
// places before it, so that no rank is sent to by all at once; a few rounds are under way together.
// Each part is one message, and an empty part is none.

#include <array>
#include <cstddef>
#include <string>

#include <rondo/transport/error.hpp>

#include "collective/algorithms.hpp"
#include "collective/blocks.hpp"
#include "message/channel.hpp"

namespace rondo::transport {
namespace {

using shm::Collective;

// The bytes of the input that go to `member`.
Range sent_to(const Group& group, const Posted& posted, std::size_t member) noexcept {
  switch (posted.fingerprint.collective) {
    case Collective::gather:
      return posted.is_root(member) ? Range{0, posted.input.bytes()} : Range{};
    case Collective::scatter:
      if (!posted.is_root(group.index())) return {};
      break;
    default:
      break;
  }
  return {posted.sent_at[member], posted.sent_at[member + 1]};
}

// The bytes of the output that come from `member`.
Range received_from(const Group& group, const Posted& posted, std::size_t member) noexcept {
  switch (posted.fingerprint.collective) {
    case Collective::scatter:
      return posted.is_root(member) ? Range{0, posted.output.bytes()} : Range{};
    case Collective::gather:
      if (!posted.is_root(group.index())) return {};
      break;
    default:
      break;
  }
  return {posted.received_at[member], posted.received_at[member + 1]};
}

class PartsExchange final : public Operation {
 public:
  PartsExchange(Group& group, const Posted& /*posted*/) : end_(group.count() - 1) {}
  Progress step(Group& group, const Posted& posted) override;
  [[nodiscard]] bool waits_for(const Group& /*group*/, std::size_t member) const override {
    return any_waits_for(receives_, member) || any_waits_for(sends_, member);
  }

 private:
  static constexpr std::size_t window = 8;

  bool post(Group& group, const Posted& posted);
  bool finish_rounds(const Group& group, const Posted& posted);
  static std::size_t source_of(const Group& group, std::size_t round) noexcept {
    return (group.index() + group.count() - round - 1) % group.count();
  }

  std::size_t end_;           // rounds, without that with itself
  std::size_t posted_ = 0;    // rounds below it are under way
  std::size_t finished_ = 0;  // are over
  OwnCopy own_;
  std::array<Message, window> sends_;
  std::array<Message, window> receives_;
};

Progress PartsExchange::step(Group& group, const Posted& posted) {
  bool moved = finish_rounds(group, posted);
  moved = post(group, posted) || moved;
  const Range from = sent_to(group, posted, group.index());
  const Range into = received_from(group, posted, group.index());
  const bool copied =
      own_.step(group.team, part_of(posted.output, into), part_of(posted.input, from));
  if (copied || finished_ < end_) return moved || copied ? Progress::moved : Progress::idle;
  return Progress::done;
}

bool PartsExchange::post(Group& group, const Posted& posted) {
  bool moved = false;
  for (; posted_ < end_ && posted_ < finished_ + window; ++posted_) {
    moved = true;
    const std::size_t source = source_of(group, posted_);
    const std::size_t target = (group.index() + posted_ + 1) % group.count();
    const Range into = received_from(group, posted, source);
    const Range from = sent_to(group, posted, target);
    if (into.size() > 0) {
      receives_[posted_ % window].receive(*group.channel, source, posted.sequence, 0,
                                          {posted.output.data + into.begin, into.size()});
    }
    if (from.size() > 0) {
      sends_[posted_ % window].send(*group.channel, target, posted.sequence, 0,
                                    {posted.input.data + from.begin, from.size()});
    }
  }
  return moved;
}

// Links report a part that is too long for its place; one that is too short is found here.
bool PartsExchange::finish_rounds(const Group& group, const Posted& posted) {
  const std::size_t before = finished_;
  for (; finished_ < posted_; ++finished_) {
    const Message& receive = receives_[finished_ % window];
    if (!receive.ended() || !sends_[finished_ % window].ended()) break;
    const std::size_t source = source_of(group, finished_);
    const std::size_t expected = received_from(group, posted, source).size();
    if (expected == 0 || receive.bytes() == expected) continue;
    throw Error(Errc::mismatch,
                "alltoallv: rank " + std::to_string(group.members[source].world_rank) + " sent " +
                    std::to_string(receive.bytes()) + " bytes, where rank " +
                    std::to_string(group.members[group.index()].world_rank) + " expects " +
                    std::to_string(expected) + "; what one sends the other must expect");
  }
  return finished_ > before;
}

}  // namespace

constexpr Algorithm algorithms::exchange = algorithm_of<PartsExchange>(
    Protocol::links, &is_one_of<Collective::gather, Collective::scatter, Collective::alltoallv>);

}  // namespace rondo::transport

// Alltoall by pairwise exchange and barrier by dissemination (see collective/flat/schedules.hpp):
// in both, every round has a partner of its own.

#include <array>
#include <cstddef>

#include "collective/algorithms.hpp"
#include "collective/blocks.hpp"
#include "collective/flat/schedules.hpp"
#include "message/channel.hpp"

namespace rondo::transport {
namespace {

// Alltoall: the two of a pair swap their parts for each other, segment by segment, a window of
// swaps at a time. Sends (P-1)/P n bytes per rank. Parts are received where they belong: input and
// output are apart (see prepare_alltoall()).
class PairwiseAlltoall final : public Operation {
 public:
  PairwiseAlltoall(Group& group, const Posted& posted);
  Progress step(Group& group, const Posted& posted) override;
  [[nodiscard]] bool waits_for(const Group& /*group*/, std::size_t member) const override {
    return any_waits_for(receives_, member) || any_waits_for(sends_, member);
  }

 private:
  static constexpr std::size_t window = 8;

  struct Swap {
    std::size_t partner = 0;
    Range bytes = {};  // of the whole block
  };
  [[nodiscard]] Swap swap_of(const Group& group, std::size_t number) const noexcept;
  bool post(Group& group, const Posted& posted);
  bool finish_swaps();

  std::size_t part_bytes_;
  schedule::Segments segments_;
  std::size_t end_;  // swaps, with itself included
  OwnCopy own_;
  std::size_t posted_ = 0;    // swaps below it are under way
  std::size_t finished_ = 0;  // are over
  std::array<Message, window> sends_;
  std::array<Message, window> receives_;
};

PairwiseAlltoall::PairwiseAlltoall(Group& group, const Posted& posted)
    : part_bytes_(posted.input.bytes() / group.count()),
      segments_(part_bytes_, group.segment_bytes),
      end_(segments_.count() * schedule::pairwise_rounds(group.count())) {}

// Swaps are numbered: all segments of the first partner, then those of the second, and so on.
PairwiseAlltoall::Swap PairwiseAlltoall::swap_of(const Group& group,
                                                 std::size_t number) const noexcept {
  const std::size_t partner =
      schedule::pairwise_partner(group.index(), group.count(), number / segments_.count());
  const Range range = segments_.range(number % segments_.count(), part_bytes_);
  const std::size_t begin = partner * part_bytes_;
  return {.partner = partner, .bytes = {begin + range.begin, begin + range.end}};
}

Progress PairwiseAlltoall::step(Group& group, const Posted& posted) {
  bool moved = finish_swaps();
  moved = post(group, posted) || moved;
  const std::size_t begin = group.index() * part_bytes_;
  const Range own{begin, begin + part_bytes_};
  const bool copied =
      own_.step(group.team, part_of(posted.output, own), part_of(posted.input, own));
  if (copied || finished_ < end_) return moved || copied ? Progress::moved : Progress::idle;
  return Progress::done;
}

// The swap of a rank with itself has no messages: `own_` copies that part.
bool PairwiseAlltoall::post(Group& group, const Posted& posted) {
  bool moved = false;
  for (; posted_ < end_ && posted_ < finished_ + window; ++posted_) {
    moved = true;
    const Swap swap = swap_of(group, posted_);
    if (swap.partner == group.index()) continue;
    receives_[posted_ % window].receive(*group.channel, swap.partner, posted.sequence, 0,
                                        {posted.output.data + swap.bytes.begin, swap.bytes.size()});
    sends_[posted_ % window].send(*group.channel, swap.partner, posted.sequence, 0,
                                  {posted.input.data + swap.bytes.begin, swap.bytes.size()});
  }
  return moved;
}

bool PairwiseAlltoall::finish_swaps() {
  const std::size_t before = finished_;
  while (finished_ < posted_ && receives_[finished_ % window].ended() &&
         sends_[finished_ % window].ended()) {
    finished_ += 1;
  }
  return finished_ > before;
}

// Barrier: log2 P rounds, rounded up, of one empty message each.
class DisseminationBarrier final : public Operation {
 public:
  DisseminationBarrier(Group& group, const Posted& posted);
  Progress step(Group& group, const Posted& posted) override;
  [[nodiscard]] bool waits_for(const Group& /*group*/, std::size_t member) const override {
    return any_waits_for(receives_, member) || any_waits_for(sends_, member);
  }

 private:
  static constexpr std::size_t most_rounds = 16;  // 65536 ranks

  std::size_t rounds_;
  std::size_t sent_ = 0;      // rounds whose message is on its way
  std::size_t received_ = 0;  // rounds whose message has come
  std::array<Message, most_rounds> sends_;
  std::array<Message, most_rounds> receives_;
};

// All receives are posted at once, because their sources are known; a message is sent when those of
// the rounds before it have come.
DisseminationBarrier::DisseminationBarrier(Group& group, const Posted& posted)
    : rounds_(schedule::dissemination_rounds(group.count())) {
  for (std::size_t round = 0; round < rounds_; ++round) {
    receives_[round].receive(*group.channel,
                             schedule::dissemination_source(group.index(), group.count(), round),
                             posted.sequence, round, {});
  }
}

Progress DisseminationBarrier::step(Group& group, const Posted& posted) {
  bool moved = false;
  while (received_ < sent_ && receives_[received_].ended()) {
    received_ += 1;
    moved = true;
  }
  if (sent_ < rounds_ && sent_ == received_) {
    sends_[sent_].send(*group.channel,
                       schedule::dissemination_target(group.index(), group.count(), sent_),
                       posted.sequence, sent_, {});
    sent_ += 1;
    moved = true;
  }
  if (received_ < rounds_ || !all_ended(sends_)) return moved ? Progress::moved : Progress::idle;
  return Progress::done;
}

}  // namespace

constexpr Algorithm algorithms::pairwise_alltoall =
    algorithm_of<PairwiseAlltoall>(Protocol::links, &is_one_of<shm::Collective::alltoall>);

constexpr Algorithm algorithms::dissemination_barrier =
    algorithm_of<DisseminationBarrier>(Protocol::links, &is_one_of<shm::Collective::barrier>);

}  // namespace rondo::transport

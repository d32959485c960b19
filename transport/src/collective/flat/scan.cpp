// Scan and exscan: every rank gets the reduction over the ranks up to it, or up to the one before.
//
// By distance doubling: in round k a rank sends what it holds of the run of 2^k ranks that ends
// with it to the rank 2^k places after it, and joins what comes from 2^k places before it, which is
// of the run before its own. After log2 P rounds its run begins at rank 0. A rank sends at most n
// bytes in each round, whole: it is meant for what is short. Runs are joined in rank order, so the
// result depends on nothing but the ranks' data; which runs are joined differs from rank to rank,
// so sums of floating point may be rounded differently from those of allreduce.
//
// These run by messages inside a node, too. An exscan keeps the run without its own data in the
// output, and the run that it sends in scratch. The output of rank 0 is left as it is.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "collective/algorithms.hpp"
#include "collective/blocks.hpp"
#include "collective/flat/schedules.hpp"
#include "message/channel.hpp"
#include "reduce/reduce.hpp"

namespace rondo::transport {
namespace {

using shm::Collective;

class Scan final : public Operation {
 public:
  Scan(Group& group, const Posted& posted);
  Progress step(Group& group, const Posted& posted) override;
  [[nodiscard]] bool waits_for(const Group& /*group*/, std::size_t member) const override {
    return receive_.waits_for(member) || send_.waits_for(member);
  }

 private:
  enum class State : std::uint8_t {
    begin_round,
    exchange,  // with the ranks at this round's distance before and after
    join,      // what was received with what is held
    copy,      // rank 0 is the whole of its scan
    done,
  };

  [[nodiscard]] State begin_round(const Group& group, const Posted& posted);
  [[nodiscard]] State join(const Group& group, const Posted& posted);
  void join_part(const Posted& posted, const Range& range) const;
  [[nodiscard]] State next_round() noexcept {
    round_ += 1;
    return State::begin_round;
  }
  /// Between a rank and those with which it exchanges in this round.
  [[nodiscard]] std::size_t distance() const noexcept { return std::size_t{1} << round_; }

  Reduction reduce_;
  bool exclusive_;
  std::size_t bytes_;
  const std::byte* held_;          // this rank's run
  std::span<std::byte> received_;  // the run before it
  std::byte* sum_ = nullptr;       // where the two are joined
  std::size_t round_ = 0;
  std::size_t joined_ = 0;  // bytes of the running join
  State state_ = State::begin_round;
  OwnCopy own_;
  Message send_;
  Message receive_;
};

Scan::Scan(Group& group, const Posted& posted)
    : reduce_(find_partial_reduction(posted.fingerprint.type, posted.fingerprint.op)),
      exclusive_(posted.fingerprint.collective == Collective::exscan),
      bytes_(posted.input.bytes()),
      held_(posted.input.data),
      sum_(posted.output.data) {
  if (group.index() == 0 || bytes_ == 0) return;
  const std::span<std::byte> scratch = group.scratch.take(exclusive_ ? 2 * bytes_ : bytes_);
  received_ = scratch.first(bytes_);
  if (exclusive_) sum_ = scratch.last(bytes_).data();
}

Progress Scan::step(Group& group, const Posted& posted) {
  switch (state_) {
    case State::begin_round:
      state_ = begin_round(group, posted);
      break;
    case State::exchange:
      if (!send_.ended() || !receive_.ended()) return Progress::idle;
      state_ = group.index() >= distance() ? State::join : next_round();
      break;
    case State::join:
      state_ = join(group, posted);
      break;
    case State::copy:
      if (!own_.step(group.team, posted.output, posted.input)) state_ = State::done;
      break;
    case State::done:
      break;
  }
  return state_ == State::done ? Progress::done : Progress::moved;
}

// Ranks near the ends of the group have nobody to send to, or to receive from.
Scan::State Scan::begin_round(const Group& group, const Posted& posted) {
  if (bytes_ == 0 || distance() >= group.count()) {
    return group.index() == 0 && !exclusive_ && bytes_ > 0 ? State::copy : State::done;
  }
  if (group.index() >= distance()) {
    receive_.receive(*group.channel, group.index() - distance(), posted.sequence, round_,
                     received_);
  }
  if (group.index() + distance() < group.count()) {
    send_.send(*group.channel, group.index() + distance(), posted.sequence, round_,
               {held_, bytes_});
  }
  joined_ = 0;
  return State::exchange;
}

// Joins a part, and goes on when all is joined.
Scan::State Scan::join(const Group& group, const Posted& posted) {
  const std::size_t bytes = std::min(bytes_ - joined_, threads_of(group.team) * joined_bytes);
  for_parts(group.team, bytes, [&](const TeamPart& part) {
    join_part(posted, {joined_ + part.begin, joined_ + part.end});
  });
  joined_ += bytes;
  if (joined_ < bytes_) return State::join;
  held_ = sum_;
  return next_round();
}

// The received run comes first. The first that is received is also the first of an exscan, and
// later ones come before what its output has.
void Scan::join_part(const Posted& posted, const Range& range) const {
  const std::size_t element_bytes = size_of(posted.fingerprint.type);
  const std::size_t first = range.begin / element_bytes;
  const std::size_t last = range.end / element_bytes;
  const std::byte* sources[] = {received_.data(), held_};
  reduce_(sources, 2, &sum_, 1, first, last);
  if (!exclusive_) return;
  std::byte* const output = posted.output.data;
  if (round_ == 0) {
    std::copy(received_.data() + range.begin, received_.data() + range.end, output + range.begin);
  } else {
    sources[1] = output;
    reduce_(sources, 2, &output, 1, first, last);
  }
}

}  // namespace

constexpr Algorithm algorithms::scan =
    algorithm_of<Scan>(Protocol::links, &is_one_of<Collective::scan, Collective::exscan>);

}  // namespace rondo::transport

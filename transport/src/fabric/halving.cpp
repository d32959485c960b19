// Allreduce by recursive halving and doubling back (Rabenseifner 2004; see fabric/schedules.hpp),
// for what is neither short nor so long that a ring is better.
//
// On the way there each of log2 P exchanges has half the bytes of the one before, and what is
// received is joined with the half that is kept: a reduce_scatter. On the way back each has twice
// as many, and is received where it belongs: an allgather. So a rank sends 2 (1 - 1/P) n bytes in
// 2 log2 P messages, and each pair that folds sends two messages of all n bytes besides.
//
// Every element is joined by one rank, the lower run of ranks first, and then copied, so all get
// the same bits. As in doubling each message is whole, however long it is: long data goes by the
// ring, whose segments overlap additions with transfers. A half that has no line is not sent.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "collective/algorithms.hpp"
#include "collective/blocks.hpp"
#include "core/channel.hpp"
#include "fabric/schedules.hpp"
#include "reduce/reduce.hpp"

namespace rondo::transport {
namespace {

using schedule::FoldRole;
using schedule::HalvingRound;

// Messages on the way there have the round as their step; those on the way back, so much more. In
// each round both of a pair send.
constexpr std::size_t way_back = 64;
constexpr std::size_t input_of_folded = 128;
constexpr std::size_t sum_for_folded = 129;

class Halving final : public Operation {
 public:
  Halving(Group& group, const Posted& posted);
  Progress step(Group& group, const Posted& posted) override;
  [[nodiscard]] bool waits_for(const Group& /*group*/, std::size_t member) const override {
    return receive_.waits_for(member) || send_.waits_for(member);
  }

 private:
  enum class State : std::uint8_t {
    begin,
    receive_folded,  // a proxy waits for the data of the rank that it stands for
    send_to_proxy,   // a folded rank sends its data
    reduce,          // exchanges halves with the partner of round_
    join,            // what was received with what is held
    gather,          // gives the partner of round_ what is finished, and gets the rest
    send_result,     // a proxy sends the result
    receive_result,  // a folded rank waits for it
    copy,            // a group of one rank
    done,
  };

  [[nodiscard]] State begin(Group& group, const Posted& posted);
  [[nodiscard]] State reduce(Group& group, const Posted& posted);
  [[nodiscard]] State gather(Group& group, const Posted& posted);
  [[nodiscard]] State after_messages(Group& group, const Posted& posted);
  [[nodiscard]] State join(Group& group, const Posted& posted);
  [[nodiscard]] State finish(Group& group, const Posted& posted);

  [[nodiscard]] HalvingRound halves(const Group& group) const noexcept {
    return schedule::halving_round(bytes_, folding_.position_of(group.index()), round_);
  }

  // Nothing is sent or received where there is nothing: the other end finds the same.
  void send(Group& group, const Posted& posted, std::size_t member, std::size_t step,
            std::span<const std::byte> data);
  void receive(Group& group, const Posted& posted, std::size_t member, std::size_t step,
               std::span<std::byte> into);

  Reduction reduce_;
  schedule::Folding folding_;
  FoldRole role_;
  std::size_t bytes_;
  const std::byte* held_;  // begins where the data begins: the input, later the output
  std::span<std::byte> scratch_;
  bool received_is_lower_ = false;
  std::size_t round_ = 0;
  Range joining_;           // what was received, as bytes of the data
  std::size_t joined_ = 0;  // bytes of the running join
  State state_ = State::begin;
  OwnCopy own_;
  Message send_;
  Message receive_;
};

// A proxy receives all of the data of the rank that it stands for; others at most the larger half.
Halving::Halving(Group& group, const Posted& posted)
    : reduce_(find_partial_reduction(posted.fingerprint.type, posted.fingerprint.op)),
      folding_(schedule::fold(group.count())),
      role_(folding_.role_of(group.index())),
      bytes_(posted.input.bytes()),
      held_(posted.input.data) {
  if (group.count() == 1 || role_ == FoldRole::folded) return;
  scratch_ = group.scratch.take(role_ == FoldRole::proxy ? bytes_ : halves(group).kept.size());
}

Progress Halving::step(Group& group, const Posted& posted) {
  switch (state_) {
    case State::begin:
      state_ = begin(group, posted);
      break;
    case State::join:
      state_ = join(group, posted);
      break;
    case State::copy:
      if (!own_.step(group.team, posted.output, posted.input)) state_ = State::done;
      break;
    case State::done:
      break;
    default:
      if (!send_.ended() || !receive_.ended()) return Progress::idle;
      state_ = after_messages(group, posted);
      break;
  }
  if (state_ != State::done) return Progress::moved;
  return Progress::done;
}

void Halving::send(Group& group, const Posted& posted, std::size_t member, std::size_t step,
                   std::span<const std::byte> data) {
  if (!data.empty()) send_.send(*group.channel, member, posted.sequence, step, data);
}

void Halving::receive(Group& group, const Posted& posted, std::size_t member, std::size_t step,
                      std::span<std::byte> into) {
  if (!into.empty()) receive_.receive(*group.channel, member, posted.sequence, step, into);
}

// A folded rank sends its data to its proxy and waits for the result; all others exchange.
Halving::State Halving::begin(Group& group, const Posted& posted) {
  if (bytes_ == 0) return State::done;
  if (group.count() == 1) return State::copy;
  const std::size_t rank = group.index();
  switch (role_) {
    case FoldRole::single:
      break;
    case FoldRole::proxy:
      receive(group, posted, rank + 1, input_of_folded, scratch_);
      joining_ = {0, bytes_};
      received_is_lower_ = false;
      return State::receive_folded;
    case FoldRole::folded:
      send(group, posted, rank - 1, input_of_folded, {held_, bytes_});
      return State::send_to_proxy;
  }
  return reduce(group, posted);
}

// Sends the half that is given away, and receives the partner's part of the other into scratch.
Halving::State Halving::reduce(Group& group, const Posted& posted) {
  const std::size_t partner = folding_.partner_of(group.index(), round_);
  const auto [kept, given] = halves(group);
  receive(group, posted, partner, round_, scratch_.first(kept.size()));
  send(group, posted, partner, round_, {held_ + given.begin, given.size()});
  joining_ = kept;
  received_is_lower_ = partner < group.index();
  return State::reduce;
}

// The round back: sends what was kept, which is finished, and receives what was given away.
Halving::State Halving::gather(Group& group, const Posted& posted) {
  const std::size_t partner = folding_.partner_of(group.index(), round_);
  const auto [kept, given] = halves(group);
  std::byte* const data = posted.output.data;
  receive(group, posted, partner, way_back + round_, {data + given.begin, given.size()});
  send(group, posted, partner, way_back + round_, {data + kept.begin, kept.size()});
  return State::gather;
}

// What follows when the messages of a state have ended.
Halving::State Halving::after_messages(Group& group, const Posted& posted) {
  switch (state_) {
    case State::reduce:
      round_ += 1;
      return join(group, posted);
    case State::receive_folded:
      return join(group, posted);
    case State::gather:
      return finish(group, posted);
    case State::send_to_proxy:
      // Only now, as the result may go where the data was sent from.
      receive(group, posted, group.index() - 1, sum_for_folded, {posted.output.data, bytes_});
      return State::receive_result;
    default:
      return State::done;
  }
}

// Joins a part of what was received with what is held, the lower run of ranks first, and goes on
// when all is joined. From the first join on the output holds the result so far.
Halving::State Halving::join(Group& group, const Posted& posted) {
  const std::size_t element_bytes = size_of(posted.fingerprint.type);
  const std::size_t bytes =
      std::min(joining_.size() - joined_, threads_of(group.team) * joined_bytes);
  const std::size_t at = joining_.begin + joined_;
  for_parts(group.team, bytes, [&](const TeamPart& part) {
    const std::byte* sources[] = {held_ + at + part.begin, scratch_.data() + joined_ + part.begin};
    if (received_is_lower_) std::swap(sources[0], sources[1]);
    std::byte* const destination = posted.output.data + at + part.begin;
    reduce_(sources, 2, &destination, 1, 0, part.size() / element_bytes);
  });
  joined_ += bytes;
  if (joined_ < joining_.size()) return State::join;
  held_ = posted.output.data;
  joined_ = 0;
  return round_ < folding_.rounds() ? reduce(group, posted) : finish(group, posted);
}

// The rounds back, from the last to the first. After them a proxy still sends the result to the
// rank that it stood for.
Halving::State Halving::finish(Group& group, const Posted& posted) {
  if (round_ > 0) {
    round_ -= 1;
    return gather(group, posted);
  }
  if (role_ != FoldRole::proxy) return State::done;
  send(group, posted, group.index() + 1, sum_for_folded, {posted.output.data, bytes_});
  return State::send_result;
}

bool suits_halving(const Group& group, const Posted& posted) {
  return posted.fingerprint.collective == shm::Collective::allreduce &&
         group.allreduce_table.pick(posted.input.bytes()) == AllreduceAlgorithm::halving;
}

}  // namespace

constexpr Algorithm algorithms::halving_allreduce =
    algorithm_of<Halving>(Protocol::links, &suits_halving);

}  // namespace rondo::transport

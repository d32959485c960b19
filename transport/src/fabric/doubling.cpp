// Allreduce by recursive doubling (see fabric/schedules.hpp), for what is short.
//
// log2 P exchanges of all n bytes, and two more messages of each pair that folds. Runs of ranks
// are joined in rank order, and every rank that joins the same runs joins them in the same order,
// so all get the same bits.

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

// Messages of the rounds have the round as their step; those of the folding, these.
constexpr std::size_t data_of_folded = 100;
constexpr std::size_t result_for_folded = 101;

class Doubling final : public Operation {
 public:
  Doubling(Group& group, const Posted& posted);
  Progress step(Group& group, const Posted& posted) override;
  [[nodiscard]] bool waits_for(const Group& /*group*/, std::size_t member) const override {
    return receive_.waits_for(member) || send_.waits_for(member);
  }

 private:
  enum class State : std::uint8_t {
    begin,
    receive_folded,  // a proxy waits for the data of the rank that it stands for
    send_to_proxy,   // a folded rank sends its data
    exchange,        // with the partner of round_
    join,            // what was received with what is held
    send_result,     // a proxy sends the result
    receive_result,  // a folded rank waits for it
    copy,            // a group of one rank
    done,
  };

  [[nodiscard]] State begin(Group& group, const Posted& posted);
  [[nodiscard]] State exchange(Group& group, const Posted& posted);
  [[nodiscard]] State next_round(Group& group, const Posted& posted);
  [[nodiscard]] State after_messages(Group& group, const Posted& posted);
  [[nodiscard]] State join(Group& group, const Posted& posted);

  Reduction reduce_;
  schedule::Folding folding_;
  FoldRole role_;
  std::size_t bytes_;
  const std::byte* held_;  // the run of ranks that is joined so far
  std::span<std::byte> received_;
  bool received_is_lower_ = false;
  std::size_t round_ = 0;
  std::size_t joined_ = 0;  // bytes of the running join
  State state_ = State::begin;
  OwnCopy own_;
  Message send_;
  Message receive_;
};

Doubling::Doubling(Group& group, const Posted& posted)
    : reduce_(find_partial_reduction(posted.fingerprint.type, posted.fingerprint.op)),
      folding_(schedule::fold(group.count())),
      role_(folding_.role_of(group.index())),
      bytes_(posted.input.bytes()),
      held_(posted.input.data) {
  if (group.count() > 1) received_ = group.scratch.take(bytes_);
}

Progress Doubling::step(Group& group, const Posted& posted) {
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

// A folded rank sends its data to its proxy and waits for the result; all others exchange.
Doubling::State Doubling::begin(Group& group, const Posted& posted) {
  if (bytes_ == 0) return State::done;
  if (group.count() == 1) return State::copy;
  const std::size_t rank = group.index();
  switch (role_) {
    case FoldRole::single:
      break;
    case FoldRole::proxy:
      receive_.receive(*group.channel, rank + 1, posted.sequence, data_of_folded, received_);
      received_is_lower_ = false;
      return State::receive_folded;
    case FoldRole::folded:
      send_.send(*group.channel, rank - 1, posted.sequence, data_of_folded, {held_, bytes_});
      return State::send_to_proxy;
  }
  return exchange(group, posted);
}

// Both of a pair send what they hold, and receive into scratch.
Doubling::State Doubling::exchange(Group& group, const Posted& posted) {
  const std::size_t partner = folding_.partner_of(group.index(), round_);
  receive_.receive(*group.channel, partner, posted.sequence, round_, received_);
  send_.send(*group.channel, partner, posted.sequence, round_, {held_, bytes_});
  received_is_lower_ = partner < group.index();
  return State::exchange;
}

// What follows when the messages of a state have ended.
Doubling::State Doubling::after_messages(Group& group, const Posted& posted) {
  if (state_ == State::receive_folded || state_ == State::exchange) {
    if (state_ == State::exchange) round_ += 1;
    return join(group, posted);
  }
  if (state_ != State::send_to_proxy) return State::done;
  // Only now, as the result may go where the data was sent from.
  receive_.receive(*group.channel, group.index() - 1, posted.sequence, result_for_folded,
                   {posted.output.data, bytes_});
  return State::receive_result;
}

// Joins a part of what was received with what is held, the lower run of ranks first, and goes on
// when all is joined. From the first join on the output holds the result so far.
Doubling::State Doubling::join(Group& group, const Posted& posted) {
  const std::size_t element_bytes = size_of(posted.fingerprint.type);
  const std::size_t bytes = std::min(bytes_ - joined_, threads_of(group.team) * joined_bytes);
  const std::byte* sources[] = {held_, received_.data()};
  if (received_is_lower_) std::swap(sources[0], sources[1]);
  std::byte* const destination = posted.output.data;
  for_parts(group.team, bytes, [&](const TeamPart& part) {
    reduce_(sources, 2, &destination, 1, (joined_ + part.begin) / element_bytes,
            (joined_ + part.end) / element_bytes);
  });
  joined_ += bytes;
  return joined_ < bytes_ ? State::join : next_round(group, posted);
}

// After the last round a proxy still sends the result to the rank that it stood for.
Doubling::State Doubling::next_round(Group& group, const Posted& posted) {
  held_ = posted.output.data;
  joined_ = 0;
  if (round_ < folding_.rounds()) return exchange(group, posted);
  if (role_ != FoldRole::proxy) return State::done;
  send_.send(*group.channel, group.index() + 1, posted.sequence, result_for_folded,
             {held_, bytes_});
  return State::send_result;
}

bool suits_doubling(const Group& group, const Posted& posted) {
  return posted.fingerprint.collective == shm::Collective::allreduce &&
         group.allreduce_table.pick(posted.input.bytes()) == AllreduceAlgorithm::doubling;
}

}  // namespace

constexpr Algorithm algorithms::doubling_allreduce =
    algorithm_of<Doubling>(Protocol::links, &suits_doubling);

}  // namespace rondo::transport

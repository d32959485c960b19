#include "fabric/doubling_allreduce.hpp"

#include <algorithm>
#include <utility>

namespace rondo::transport {
namespace {

// What one step joins.
constexpr std::size_t join_bytes = std::size_t{256} << 10U;

// Messages of the rounds have the round as their step; those of the folding, these.
constexpr std::size_t in_tag = 100;
constexpr std::size_t out_tag = 101;

}  // namespace

DoublingAllreduce::DoublingAllreduce(Group& group, const Posted& posted)
    : reduce_(find_reduction(posted.fingerprint.type, posted.fingerprint.op)),
      folding_(schedule::fold(group.count())),
      role_(folding_.role_of(group.index())),
      bytes_(posted.input.bytes()),
      held_(posted.input.data) {
  if (group.count() > 1) received_ = group.scratch.take(bytes_);
}

Progress DoublingAllreduce::step(Group& group, const Posted& posted) {
  switch (state_) {
    case State::begin:
      state_ = begin(group, posted);
      break;
    case State::join:
      state_ = join(group, posted);
      break;
    case State::copy:
      if (!own_.step(posted.output, posted.input)) state_ = State::done;
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

DoublingAllreduce::State DoublingAllreduce::begin(Group& group, const Posted& posted) {
  if (bytes_ == 0) return State::done;
  if (group.count() == 1) return State::copy;
  const std::size_t rank = group.index();
  switch (role_) {
    case schedule::FoldRole::alone:
      break;
    case schedule::FoldRole::keeper:
      receive_.receive(*group.channel, rank + 1, posted.sequence, in_tag, received_);
      received_is_lower_ = false;
      return State::take_in;
    case schedule::FoldRole::guest:
      send_.send(*group.channel, rank - 1, posted.sequence, in_tag, {held_, bytes_});
      return State::hand_in;
  }
  return exchange(group, posted);
}

DoublingAllreduce::State DoublingAllreduce::exchange(Group& group, const Posted& posted) {
  const std::size_t partner = folding_.partner_of(group.index(), round_);
  receive_.receive(*group.channel, partner, posted.sequence, round_, received_);
  send_.send(*group.channel, partner, posted.sequence, round_, {held_, bytes_});
  received_is_lower_ = partner < group.index();
  return State::exchange;
}

DoublingAllreduce::State DoublingAllreduce::after_messages(Group& group, const Posted& posted) {
  if (state_ == State::take_in || state_ == State::exchange) {
    if (state_ == State::exchange) round_ += 1;
    return join(group, posted);
  }
  if (state_ != State::hand_in) return State::done;
  // Only now, as the result may go where the data was sent from.
  receive_.receive(*group.channel, group.index() - 1, posted.sequence, out_tag,
                   {posted.output.data, bytes_});
  return State::take_out;
}

// Joins a part of what was received, and goes on when all is joined.
DoublingAllreduce::State DoublingAllreduce::join(Group& group, const Posted& posted) {
  const std::size_t element_bytes = size_of(posted.fingerprint.type);
  const std::size_t end = std::min(bytes_, joined_ + join_bytes);
  const std::byte* sources[] = {held_, received_.data()};
  if (received_is_lower_) std::swap(sources[0], sources[1]);
  std::byte* const destination = posted.output.data;
  reduce_(sources, 2, &destination, 1, joined_ / element_bytes, end / element_bytes);
  joined_ = end;
  return joined_ < bytes_ ? State::join : next_round(group, posted);
}

DoublingAllreduce::State DoublingAllreduce::next_round(Group& group, const Posted& posted) {
  held_ = posted.output.data;
  joined_ = 0;
  if (round_ < folding_.rounds()) return exchange(group, posted);
  if (role_ != schedule::FoldRole::keeper) return State::done;
  send_.send(*group.channel, group.index() + 1, posted.sequence, out_tag, {held_, bytes_});
  return State::hand_out;
}

bool DoublingAllreduce::waits_for(const Group& /*group*/, std::size_t member) const {
  return receive_.waits_for(member) || send_.waits_for(member);
}

}  // namespace rondo::transport

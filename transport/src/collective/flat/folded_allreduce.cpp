// Allreduces by exchanges between pairs, by recursive doubling and by recursive halving (see
// collective/flat/schedules.hpp), for what is so short that a ring would take too many messages.
//
// - Doubling, for the shortest: log2 P exchanges of all n bytes.
// - Halving and doubling back (Rabenseifner 2004): on the way there each of log2 P exchanges has
//   half the bytes of the one before, and what is received is joined with the half that is kept, a
//   reduce_scatter; on the way back each has twice as many, and is received where it belongs, an
//   allgather. So a rank sends 2 (1 - 1/P) n bytes in 2 log2 P messages.
//
// Each pair that folds sends two messages of all n bytes besides. Runs of ranks are joined in rank
// order; by doubling every rank that joins the same runs joins them in the same order, and by
// halving each element is joined by one rank and then copied. So all get the same bits. Each
// message is whole, however long it is: long data goes by the ring, whose segments overlap
// additions with transfers.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "collective/algorithms.hpp"
#include "collective/blocks.hpp"
#include "collective/flat/schedules.hpp"
#include "message/channel.hpp"
#include "reduce/reduce.hpp"

namespace rondo::transport {
namespace {

using schedule::Folding;
using schedule::FoldRole;

// Messages of the exchanges have their number as their step; those of the folding, these.
constexpr std::size_t data_of_folded = 128;
constexpr std::size_t result_for_folded = 129;

// The data that a position moves in an exchange with the partner of a round.
struct Exchange {
  std::size_t round = 0;
  Range sent = {};
  Range received = {};
  bool joins = true;  // what is received with what is held; else it is finished
};

struct Doubling {
  static constexpr AllreduceAlgorithm algorithm = AllreduceAlgorithm::doubling;

  static std::size_t exchanges(const Folding& folding) noexcept { return folding.rounds(); }
  static Exchange exchange(const Folding& /*folding*/, std::size_t /*position*/, std::size_t bytes,
                           std::size_t number) noexcept {
    return {.round = number, .sent = {0, bytes}, .received = {0, bytes}};
  }
};

struct Halving {
  static constexpr AllreduceAlgorithm algorithm = AllreduceAlgorithm::halving;

  static std::size_t exchanges(const Folding& folding) noexcept { return 2 * folding.rounds(); }
  static Exchange exchange(const Folding& folding, std::size_t position, std::size_t bytes,
                           std::size_t number) noexcept {
    const bool back = number >= folding.rounds();
    const std::size_t round = back ? exchanges(folding) - 1 - number : number;
    const auto [kept, given] = schedule::halving_round(bytes, position, round);
    if (back) return {.round = round, .sent = kept, .received = given, .joins = false};
    return {.round = round, .sent = given, .received = kept};
  }
};

template <typename Schedule>
class FoldedAllreduce final : public Operation {
 public:
  FoldedAllreduce(Group& group, const Posted& posted);
  Progress step(Group& group, const Posted& posted) override;
  [[nodiscard]] bool waits_for(const Group& /*group*/, std::size_t member) const override {
    return receive_.waits_for(member) || send_.waits_for(member);
  }

 private:
  enum class State : std::uint8_t {
    begin,
    receive_folded,  // a proxy waits for the data of the rank that it stands for
    send_to_proxy,   // a folded rank sends its data
    exchange,        // number_, with a partner
    join,            // what was received with what is held
    send_result,     // a proxy sends the result
    receive_result,  // a folded rank waits for it
    copy,            // a group of one rank
    done,
  };

  [[nodiscard]] Exchange exchange_of(const Group& group) const noexcept {
    return Schedule::exchange(folding_, folding_.position_of(group.index()), bytes_, number_);
  }
  [[nodiscard]] State begin(Group& group, const Posted& posted);
  [[nodiscard]] State next(Group& group, const Posted& posted);
  [[nodiscard]] State exchange(Group& group, const Posted& posted);
  [[nodiscard]] State after_messages(Group& group, const Posted& posted);
  [[nodiscard]] State join(Group& group, const Posted& posted);

  // Nothing is sent or received where there is nothing: the other end finds the same.
  void send(Group& group, const Posted& posted, std::size_t member, std::size_t step,
            std::span<const std::byte> data);
  void receive(Group& group, const Posted& posted, std::size_t member, std::size_t step,
               std::span<std::byte> into);

  Reduction reduce_;
  Folding folding_;
  FoldRole role_;
  std::size_t bytes_;
  const std::byte* held_;         // begins where the data begins: the input, later the output
  std::span<std::byte> scratch_;  // for what is received to be joined
  std::size_t number_ = 0;        // of the exchange
  bool joins_ = true;             // what is being received
  bool received_is_lower_ = false;
  Range joining_;           // what was received, as bytes of the data
  std::size_t joined_ = 0;  // bytes of the running join
  State state_ = State::begin;
  OwnCopy own_;
  Message send_;
  Message receive_;
};

// A proxy receives all of the data of the rank that it stands for; others receive the most in the
// first exchange.
template <typename Schedule>
FoldedAllreduce<Schedule>::FoldedAllreduce(Group& group, const Posted& posted)
    : reduce_(find_partial_reduction(posted.fingerprint.type, posted.fingerprint.op)),
      folding_(schedule::fold(group.count())),
      role_(folding_.role_of(group.index())),
      bytes_(posted.input.bytes()),
      held_(posted.input.data) {
  if (group.count() == 1 || role_ == FoldRole::folded) return;
  scratch_ =
      group.scratch.take(role_ == FoldRole::proxy ? bytes_ : exchange_of(group).received.size());
}

template <typename Schedule>
Progress FoldedAllreduce<Schedule>::step(Group& group, const Posted& posted) {
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

template <typename Schedule>
void FoldedAllreduce<Schedule>::send(Group& group, const Posted& posted, std::size_t member,
                                     std::size_t step, std::span<const std::byte> data) {
  if (!data.empty()) send_.send(*group.channel, member, posted.sequence, step, data);
}

template <typename Schedule>
void FoldedAllreduce<Schedule>::receive(Group& group, const Posted& posted, std::size_t member,
                                        std::size_t step, std::span<std::byte> into) {
  if (!into.empty()) receive_.receive(*group.channel, member, posted.sequence, step, into);
}

// A folded rank sends its data to its proxy and waits for the result; all others exchange.
template <typename Schedule>
auto FoldedAllreduce<Schedule>::begin(Group& group, const Posted& posted) -> State {
  if (bytes_ == 0) return State::done;
  if (group.count() == 1) return State::copy;
  const std::size_t rank = group.index();
  switch (role_) {
    case FoldRole::single:
      break;
    case FoldRole::proxy:
      receive(group, posted, rank + 1, data_of_folded, scratch_);
      joining_ = {0, bytes_};
      return State::receive_folded;
    case FoldRole::folded:
      send(group, posted, rank - 1, data_of_folded, {held_, bytes_});
      return State::send_to_proxy;
  }
  return next(group, posted);
}

// After the last exchange a proxy still sends the result to the rank that it stood for.
template <typename Schedule>
auto FoldedAllreduce<Schedule>::next(Group& group, const Posted& posted) -> State {
  if (number_ < Schedule::exchanges(folding_)) return exchange(group, posted);
  if (role_ != FoldRole::proxy) return State::done;
  send(group, posted, group.index() + 1, result_for_folded, {posted.output.data, bytes_});
  return State::send_result;
}

// Data that is to be joined is received into scratch; finished data is received where it belongs.
template <typename Schedule>
auto FoldedAllreduce<Schedule>::exchange(Group& group, const Posted& posted) -> State {
  const Exchange moved = exchange_of(group);
  const std::size_t partner = folding_.partner_of(group.index(), moved.round);
  std::byte* const into = moved.joins ? scratch_.data() : posted.output.data + moved.received.begin;
  receive(group, posted, partner, number_, {into, moved.received.size()});
  send(group, posted, partner, number_, {held_ + moved.sent.begin, moved.sent.size()});
  joins_ = moved.joins;
  joining_ = moved.received;
  received_is_lower_ = partner < group.index();
  return State::exchange;
}

// The next state, when the messages of the present one have ended.
template <typename Schedule>
auto FoldedAllreduce<Schedule>::after_messages(Group& group, const Posted& posted) -> State {
  switch (state_) {
    case State::exchange:
      number_ += 1;
      return joins_ ? join(group, posted) : next(group, posted);
    case State::receive_folded:
      return join(group, posted);
    case State::send_to_proxy:
      // Only now, as the result may go where the data was sent from.
      receive(group, posted, group.index() - 1, result_for_folded, {posted.output.data, bytes_});
      return State::receive_result;
    default:
      return State::done;
  }
}

// Joins a part of what was received with what is held, the lower run of ranks first, and goes on
// when all is joined. From the first join on the output holds the result so far.
template <typename Schedule>
auto FoldedAllreduce<Schedule>::join(Group& group, const Posted& posted) -> State {
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
  return next(group, posted);
}

template <typename Schedule>
bool suits(const Group& group, const Posted& posted) {
  return posted.fingerprint.collective == shm::Collective::allreduce &&
         group.allreduce_table.pick(posted.input.bytes()) == Schedule::algorithm;
}

}  // namespace

constexpr Algorithm algorithms::doubling_allreduce =
    algorithm_of<FoldedAllreduce<Doubling>>(Protocol::links, &suits<Doubling>);

constexpr Algorithm algorithms::halving_allreduce =
    algorithm_of<FoldedAllreduce<Halving>>(Protocol::links, &suits<Halving>);

}  // namespace rondo::transport

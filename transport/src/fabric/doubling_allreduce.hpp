#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collective/operation.hpp"
#include "fabric/doubling_schedule.hpp"
#include "fabric/message.hpp"
#include "node/own_copy.hpp"
#include "reduce/reduce.hpp"

namespace rondo::transport {

/// Allreduce by recursive doubling (see schedule/doubling.hpp), for what is short.
///
/// log2 P exchanges of all n bytes, and two more messages of each pair that folds. Runs of ranks
/// are joined in rank order, and every rank that joins the same runs joins them in the same
/// order, so all get the same bits.
class DoublingAllreduce final : public Operation {
 public:
  DoublingAllreduce(Group& group, const Posted& posted);
  Progress step(Group& group, const Posted& posted) override;
  [[nodiscard]] bool waits_for(const Group& group, std::size_t member) const override;

 private:
  enum class State : std::uint8_t {
    begin,
    take_in,   // a keeper waits for its guest's data
    hand_in,   // a guest sends its data
    exchange,  // with the partner of round_
    join,      // what was received with what is held
    hand_out,  // a keeper sends the result
    take_out,  // a guest waits for it
    copy,      // a rank alone
    done,
  };

  [[nodiscard]] State begin(Group& group, const Posted& posted);
  [[nodiscard]] State exchange(Group& group, const Posted& posted);
  [[nodiscard]] State next_round(Group& group, const Posted& posted);
  [[nodiscard]] State after_messages(Group& group, const Posted& posted);
  [[nodiscard]] State join(Group& group, const Posted& posted);

  Reduction reduce_;
  schedule::Folding folding_;
  schedule::FoldRole role_;
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

}  // namespace rondo::transport

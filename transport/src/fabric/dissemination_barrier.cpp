#include "fabric/dissemination_barrier.hpp"

#include "fabric/dissemination_schedule.hpp"

namespace rondo::transport {

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
  while (heard_ < told_ && receives_[heard_].ended()) {
    heard_ += 1;
    moved = true;
  }
  if (told_ < rounds_ && told_ == heard_) {
    sends_[told_].send(*group.channel,
                       schedule::dissemination_target(group.index(), group.count(), told_),
                       posted.sequence, told_, {});
    told_ += 1;
    moved = true;
  }
  if (heard_ < rounds_ || !all_ended(sends_)) return moved ? Progress::moved : Progress::idle;
  return Progress::done;
}

bool DisseminationBarrier::waits_for(const Group& /*group*/, std::size_t member) const {
  return any_waits_for(receives_, member) || any_waits_for(sends_, member);
}

}  // namespace rondo::transport

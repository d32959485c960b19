#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "collective/operation.hpp"
#include "fabric/binomial_schedule.hpp"
#include "fabric/message.hpp"
#include "fabric/segments.hpp"
#include "node/own_copy.hpp"
#include "reduce/reduce.hpp"

namespace rondo::transport {

/// Reduction up a binomial tree, segment by segment: a rank joins a segment of its own data with
/// those of its children, in order, and passes it on to its parent.
///
/// log2 P hops; every rank but the root sends n bytes. The order of summation is that of the
/// ranks from the root on, whatever comes first. Only the root's output is used.
///
/// Messages from children are numbered: all children's segment 0, then all their segment 1, and
/// so on. They are received into the slots of a window, joined in this order, and the sums kept in
/// a second window until they are sent.
class TreeReduce final : public Operation {
 public:
  TreeReduce(Group& group, const Posted& posted);
  Progress step(Group& group, const Posted& posted) override;
  [[nodiscard]] bool waits_for(const Group& group, std::size_t member) const override;

 private:
  bool end_sends();
  bool post_receives(Group& group, const Posted& posted);
  bool join_one(const Posted& posted);
  bool post_sends(Group& group, const Posted& posted);
  [[nodiscard]] std::byte* slot(std::size_t index) const noexcept;
  [[nodiscard]] std::byte* sum_of(const Posted& posted, std::size_t segment) const noexcept;

  Reduction reduce_;
  schedule::Binomial tree_;
  std::size_t children_;
  std::size_t bytes_;
  Segments segments_;
  std::size_t end_;  // messages from children
  std::span<std::byte> scratch_;
  OwnCopy own_;

  // Messages below these numbers are being received, are received and joined.
  std::size_t receives_posted_ = 0;
  std::size_t joined_ = 0;
  // Segments below these are being sent to the parent, are sent.
  std::size_t sends_posted_ = 0;
  std::size_t sends_ended_ = 0;
  std::array<Message, segment_window> receives_;
  std::array<Message, segment_window> sends_;
};

}  // namespace rondo::transport

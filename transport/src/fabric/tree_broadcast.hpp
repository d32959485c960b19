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

namespace rondo::transport {

/// Broadcast down a binomial tree, segment by segment: a rank passes a segment on to its
/// children, the largest subtree first, as soon as it has it, a window of segments at a time.
///
/// log2 P hops; a rank sends n bytes to each child, of which it has up to log2 P. Segments are
/// received where they belong, and sent from there.
class TreeBroadcast final : public Operation {
 public:
  TreeBroadcast(Group& group, const Posted& posted);
  Progress step(Group& group, const Posted& posted) override;
  [[nodiscard]] bool waits_for(const Group& group, std::size_t member) const override;

 private:
  static constexpr std::size_t most_children = 16;  // of 65536 ranks

  bool receive(Group& group, const Posted& posted);
  bool pass_on(Group& group, const Posted& posted);

  schedule::Binomial tree_;
  std::size_t children_;
  std::size_t bytes_;
  Segments segments_;
  OwnCopy own_;

  // Segments below these are being received, are here, are being passed on, are passed on.
  std::size_t receives_posted_ = 0;
  std::size_t received_ = 0;
  std::size_t sends_posted_ = 0;
  std::size_t sends_ended_ = 0;
  std::array<Message, segment_window> receives_;
  std::array<std::array<Message, most_children>, segment_window> sends_;
};

}  // namespace rondo::transport

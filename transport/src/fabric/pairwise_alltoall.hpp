#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "collective/operation.hpp"
#include "fabric/message.hpp"
#include "fabric/segments.hpp"
#include "node/own_copy.hpp"

namespace rondo::transport {

/// Alltoall by pairwise exchange (see schedule/pairwise.hpp): the two of a pair swap their parts
/// for each other, segment by segment, a window of swaps at a time.
///
/// Sends (P-1)/P n bytes per rank. Parts are received where they belong; in place, by way of
/// scratch, as each must have left before the other's may take its room.
class PairwiseAlltoall final : public Operation {
 public:
  PairwiseAlltoall(Group& group, const Posted& posted);
  Progress step(Group& group, const Posted& posted) override;
  [[nodiscard]] bool waits_for(const Group& group, std::size_t member) const override;

 private:
  static constexpr std::size_t window = 8;

  struct Swap {
    std::size_t partner = 0;
    Range bytes = {};  // of the whole block
  };
  [[nodiscard]] Swap swap_of(const Group& group, std::size_t number) const noexcept;
  [[nodiscard]] std::span<std::byte> target(const Posted& posted, std::size_t number,
                                            const Range& bytes) const noexcept;
  bool post(Group& group, const Posted& posted);
  bool finish(const Group& group, const Posted& posted);

  std::size_t part_bytes_;
  Segments segments_;
  std::size_t end_;  // swaps, with itself included
  bool in_place_;
  std::span<std::byte> scratch_;
  OwnCopy own_;
  std::size_t posted_ = 0;    // swaps below it are under way
  std::size_t finished_ = 0;  // are over
  std::array<Message, window> sends_;
  std::array<Message, window> receives_;
};

}  // namespace rondo::transport

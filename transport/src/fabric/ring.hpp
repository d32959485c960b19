#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "collective/operation.hpp"
#include "fabric/message.hpp"
#include "fabric/segments.hpp"
#include "node/own_copy.hpp"
#include "reduce/reduce.hpp"

namespace rondo::transport {

/// Which steps of schedule/ring.hpp an operation takes.
enum class RingHalves : std::uint8_t { both, reduce_scatter, allgather };

/// What allreduce, reduce_scatter and allgather over a ring have in common.
///
/// Every chunk is cut into segments, and the segments of all chunks into blocks of up to
/// segment_window each, its lanes. The ring's steps are taken block by block, and within a step
/// lane by lane; the messages in that order are numbered, alike on all ranks. With L lanes:
///
/// - message k is sent when that of a step ago, k - L, has been received and joined, and less
///   than L are being sent;
/// - the receive of message k is posted, ahead of its arrival, when message k - L is sent and
///   received.
///
/// As each waits only for smaller numbers, and ends when the neighbours have come as far, the
/// ring cannot stall. Partial sums live in 2 L slots of scratch, so that the input is never
/// written to and the output only with what is final. The sum over a chunk goes in ring order,
/// beginning right of the rank that it ends at.
class RingOperation : public Operation {
 public:
  Progress step(Group& group, const Posted& posted) final;
  [[nodiscard]] bool waits_for(const Group& group, std::size_t member) const final;

 protected:
  /// The longest chunk has `longest_chunk` bytes.
  RingOperation(Group& group, const Posted& posted, RingHalves halves, std::size_t longest_chunk);

 private:
  /// This rank's part of a chunk.
  [[nodiscard]] virtual ConstBlock given(const Group& group, const Posted& posted,
                                         std::size_t chunk) const = 0;
  /// Where a chunk goes when it is finished; of a reduce_scatter, the own one only.
  [[nodiscard]] virtual Block result(const Group& group, const Posted& posted,
                                     std::size_t chunk) const = 0;

  struct Item {
    std::size_t step = 0;
    std::size_t segment = 0;
  };
  [[nodiscard]] Item item(std::uint64_t number) const noexcept;
  [[nodiscard]] bool reduces(std::size_t step) const noexcept { return step < half_; }
  [[nodiscard]] std::span<std::byte> slot(std::uint64_t number, std::size_t bytes) const noexcept;

  bool end_sends();
  bool post_sends(Group& group, const Posted& posted);
  bool post_receives(Group& group, const Posted& posted);
  bool take_received(Group& group, const Posted& posted);
  bool copy_own(const Group& group, const Posted& posted);

  [[nodiscard]] std::span<const std::byte> source(const Group& group, const Posted& posted,
                                                  std::uint64_t number) const;
  [[nodiscard]] std::span<std::byte> target(const Group& group, const Posted& posted,
                                            std::uint64_t number) const;
  void join(const Group& group, const Posted& posted, const Item& at, std::span<std::byte> partial);

  Reduction reduce_;
  std::size_t half_;
  std::size_t first_step_;
  std::size_t steps_;
  bool copies_own_;
  Segments segments_;
  std::size_t lanes_;
  std::uint64_t end_;
  std::span<std::byte> scratch_;
  OwnCopy own_;

  // Messages below these numbers are being sent, are sent, are being received, are received.
  std::uint64_t sends_posted_ = 0;
  std::uint64_t sends_ended_ = 0;
  std::uint64_t receives_posted_ = 0;
  std::uint64_t received_ = 0;
  std::array<Message, segment_window> sends_;
  std::array<Message, segment_window> receives_;
};

}  // namespace rondo::transport

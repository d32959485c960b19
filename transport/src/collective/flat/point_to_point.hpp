#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include <rondo/transport/block.hpp>

#include "collective/algorithms.hpp"
#include "message/channel.hpp"

namespace rondo::transport {

/// One message to one member and one from it, either of which may be absent.
struct Part {
  std::size_t member = 0;
  MessageKind kind = MessageKind::point_to_point;
  bool sends = false;
  bool receives = false;
  std::uint32_t out_label = 0;
  std::uint32_t in_label = 0;
  ConstBlock out = {};
  Block in = {};

  std::vector<std::byte> packed_out = {};  ///< rows without gaps, where the block has some
  std::vector<std::byte> packed_in = {};
  std::uint64_t value = 0;          ///< of a signal
  std::uint64_t* signal = nullptr;  ///< where the value goes
  Transfer sent;
  Transfer received;

  /// Copies what was asked for, not how far it has come.
  void describe_as(const Part& other) noexcept {
    member = other.member;
    if (other.sends) send(other.out, other.out_label);
    if (other.receives) receive(other.in, other.in_label);
  }
  void send(ConstBlock block, std::uint32_t label) noexcept {
    sends = true;
    out = block;
    out_label = label;
  }
  void receive(Block block, std::uint32_t label) noexcept {
    receives = true;
    in = block;
    in_label = label;
  }
  void put_signal(std::uint64_t number, std::uint32_t label) noexcept {
    kind = MessageKind::signal;
    value = number;
    constexpr std::size_t bytes = sizeof value;
    send({reinterpret_cast<const std::byte*>(&value), ElementType::i64, 1, bytes, bytes}, label);
  }
  void wait_signal(std::uint64_t& number, std::uint32_t label) noexcept {
    kind = MessageKind::signal;
    signal = &number;
    constexpr std::size_t bytes = sizeof value;
    receive({reinterpret_cast<std::byte*>(&value), ElementType::i64, 1, bytes, bytes}, label);
  }
};

/// The parts of one operation. Kept by its record, so that the next one allocates nothing.
class Parts {
 public:
  void clear() noexcept { used_ = 0; }
  [[nodiscard]] Part& add() {
    if (used_ == all_.size()) all_.emplace_back();
    Part& part = all_[used_++];
    part.kind = MessageKind::point_to_point;
    part.sends = part.receives = false;
    part.signal = nullptr;
    return part;
  }
  [[nodiscard]] std::size_t size() const noexcept { return used_; }
  [[nodiscard]] Part& operator[](std::size_t i) noexcept { return all_[i]; }
  [[nodiscard]] const Part& operator[](std::size_t i) const noexcept { return all_[i]; }

 private:
  std::deque<Part> all_ = {};
  std::size_t used_ = 0;
};

/// Messages between this rank and some others: send, recv, exchanges of halos, signals.
///
/// All are handed to the links when they are posted, outside the order of collectives; those of
/// one (peer, tag) match in the order posted. It is done when every part is.
class PointToPoint final : public Operation {
 public:
  /// Hands `parts` to the links.
  PointToPoint(const Group& group, Parts& parts);
  ~PointToPoint() override;

  /// Did all its messages end while they were posted?
  [[nodiscard]] bool is_done();

  Progress step(Group& group, const Posted& posted) override;
  [[nodiscard]] bool waits_for(const Group& group, std::size_t member) const override;

 private:
  void post_all();
  void cancel_all();

  const Channel* channel_;
  Team* team_;
  Parts* parts_;
};

}  // namespace rondo::transport

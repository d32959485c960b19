#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "links/shm/layout.hpp"

namespace rondo::transport::links::shm {

/// The sender's end of a Ring.
class RingWriter {
 public:
  RingWriter() noexcept = default;
  explicit RingWriter(Ring& ring) noexcept : ring_(&ring) {}
  /// Is there a ring? All else needs one.
  [[nodiscard]] bool attached() const noexcept { return ring_ != nullptr; }

  /// Is there no free slot? Reads what the receiver writes only when there seems to be none.
  [[nodiscard]] bool full() noexcept;
  /// Should messages stay with this rank until they are asked for?
  [[nodiscard]] bool crowded() const noexcept;
  /// Fills the next slot, which must be free, and shows it to the receiver.
  void push(Kind kind, std::uint64_t tag, std::span<const std::byte> payload) noexcept;

 private:
  Ring* ring_ = nullptr;
  std::uint64_t pushed_ = 0;
  std::uint64_t taken_ = 0;  // as last read
};

/// The receiver's end of a Ring.
class RingReader {
 public:
  RingReader() noexcept = default;
  explicit RingReader(Ring& ring) noexcept : ring_(&ring) {}
  /// Is there a ring? All else needs one.
  [[nodiscard]] bool attached() const noexcept { return ring_ != nullptr; }

  /// The oldest message that has not been popped; its payload lies in the ring.
  struct Front {
    Kind kind = Kind::inlined;
    std::uint64_t tag = 0;
    std::span<const std::byte> payload = {};
  };
  /// Is there a message?
  [[nodiscard]] bool ready() const noexcept { return filled(popped_); }
  /// Are half of the slots filled, so that the sender may soon find none?
  [[nodiscard]] bool half_full() const noexcept { return filled(popped_ + ring_slots / 2 - 1); }
  /// The message, which must be there.
  [[nodiscard]] Front front() const noexcept;
  /// Goes on to the next message: the payload is not read any more.
  void pop() noexcept;
  /// Tells the sender whether its messages should stay with it until they are asked for.
  void set_crowded(bool crowded) noexcept;

 private:
  [[nodiscard]] bool filled(std::uint64_t message) const noexcept;

  Ring* ring_ = nullptr;
  std::uint64_t popped_ = 0;
};

}  // namespace rondo::transport::links::shm

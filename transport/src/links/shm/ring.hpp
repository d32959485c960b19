#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "memory/memory.hpp"

// The memory that two ranks of a node share to exchange messages, and the two ends of it. All
// shared memory here lies in the sender's control segment, made on first use; offsets are into that
// segment unless said otherwise.

namespace rondo::transport::shm_link {

/// Messages that one rank may have under way to another before a send has to wait its turn.
inline constexpr std::size_t ring_slots = 64;
/// The largest message that travels in its slot.
inline constexpr std::size_t ring_payload_bytes = 56;

/// The contents of a slot.
enum class SlotKind : std::uint8_t {
  inlined = 1,  ///< the message
  eager,        ///< an Announcement: the message is in its EagerBuffer
  arena,        ///< an Announcement: the message lies in the sender's arena
  ordinary,     ///< an Announcement: the message lies where only the sender can read it
};

/// One message, or its announcement. `word` is stored last (release) and tells that the slot is
/// filled: its lowest bit changes with every lap of the ring.
struct alignas(64) RingSlot {
  std::atomic<std::uint64_t> word{0};  ///< tag (48 bits), bytes inlined (8), kind (7), lap (1)
  std::array<std::byte, ring_payload_bytes> payload{};
};
static_assert(sizeof(RingSlot) == 64);

/// The messages of one rank to one other, in the order sent. The receiver writes `consumed` and
/// `crowded` only.
struct Ring {
  /// Slots that the receiver does not read any more.
  alignas(128) std::atomic<std::uint64_t> consumed{0};
  /// Not 0: the receiver keeps many messages that no receive matches, and the sender must not
  /// have more of them copied. Seldom written, and on a line of its own: the sender reads it often.
  alignas(128) std::atomic<std::uint32_t> crowded{0};
  alignas(128) std::array<RingSlot, ring_slots> slots;
};

/// The offset of the ring to each rank of the World, 0 until it is made.
using RingOffset = std::atomic<std::uint64_t>;

/// How the two sides of one larger message talk about it. It belongs to the sender until it is
/// announced, and again once the receiver has stored `consumed`; between, each word has one writer.
struct alignas(128) MessageState {
  /// By the sender: it has cancelled the message. Data that is still read of it must not be used.
  std::atomic<std::uint32_t> withdrawn{0};
  /// By the sender, of an ordinary message: where its bounce buffer is, and the fragments that have
  /// been copied there so far.
  std::atomic<std::uint64_t> bounce{0};
  std::atomic<std::uint64_t> filled{0};

  /// By the receiver: it wants an ordinary message, and has copied this many fragments of it.
  alignas(64) std::atomic<std::uint32_t> requested{0};
  std::atomic<std::uint64_t> emptied{0};
  /// By the receiver, last: it reads nothing of the message any more.
  std::atomic<std::uint32_t> consumed{0};
};
static_assert(sizeof(MessageState) == 128);

/// The contents of a slot that announces a larger message.
struct Announcement {
  std::uint64_t bytes = 0;
  std::uint64_t state = 0;  ///< where its MessageState is
  std::uint64_t arena = 0;  ///< where the message begins in the sender's arena, if it does
};
static_assert(sizeof(Announcement) <= ring_payload_bytes);

/// A copy of a message that its receiver has not asked for yet, right behind its state.
inline constexpr std::size_t eager_bytes = 8192;
struct EagerBuffer {
  MessageState state;
  std::array<std::byte, eager_bytes> message{};
};

/// An ordinary message is copied fragment by fragment through a bounce buffer.
inline constexpr std::size_t fragment_bytes = std::size_t{64} << 10U;
inline constexpr std::uint64_t bounce_fragments = 4;
inline constexpr std::size_t bounce_bytes = fragment_bytes * bounce_fragments;

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// The beginning of this rank's table of rings in its control segment; makes it unless it is there.
[[nodiscard]] RingOffset* make_rings(shm::RankMemory& mine, std::size_t ranks);

/// A new ring to `rank`, shown to it. Throws Error(out_of_memory).
[[nodiscard]] Ring& make_ring(shm::RankMemory& mine, RingOffset* rings, int rank);

/// The ring from the owner of `memory` to `rank`; null as long as the owner has not made it.
[[nodiscard]] Ring* find_ring(shm::RankMemory& memory, int rank) noexcept;

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
  void push(SlotKind kind, std::uint64_t tag, std::span<const std::byte> payload) noexcept;

 private:
  Ring* ring_ = nullptr;
  std::uint64_t pushed_ = 0;
  std::uint64_t consumed_ = 0;  // as last read
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
    SlotKind kind = SlotKind::inlined;
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

}  // namespace rondo::transport::shm_link

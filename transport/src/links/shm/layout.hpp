#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

// What two ranks of a node share to exchange messages. All of it lies in the sender's control
// segment, made on first use; offsets are into that segment unless said otherwise.

namespace rondo::transport::links::shm {

/// Messages that one rank may have under way to another before a send has to wait its turn.
inline constexpr std::size_t ring_slots = 64;
/// The largest message that travels in its slot.
inline constexpr std::size_t inline_bytes = 56;

/// What a slot holds.
enum class Kind : std::uint8_t {
  inlined = 1,  ///< the message
  boxed,        ///< an Announcement: the message lies behind its parcel
  arena,        ///< an Announcement: the message lies in the sender's arena
  ordinary,     ///< an Announcement: the message lies where only the sender can read it
};

/// One message, or the news of one. `word` is stored last (release) and tells that the slot is
/// filled: its lowest bit changes with every lap of the ring.
struct alignas(64) Slot {
  std::atomic<std::uint64_t> word{0};  ///< tag (48 bits), bytes inlined (8), kind (7), lap (1)
  std::array<std::byte, inline_bytes> payload{};
};
static_assert(sizeof(Slot) == 64);

/// The messages of one rank to one other, in the order sent. The receiver writes `taken` and
/// `crowded` only.
struct Ring {
  /// Slots that the receiver does not read any more.
  alignas(128) std::atomic<std::uint64_t> taken{0};
  /// Not 0: the receiver keeps many messages that nobody has asked for, and the sender must not
  /// have more of them copied. Seldom written, and on a line of its own: the sender reads it often.
  alignas(128) std::atomic<std::uint32_t> crowded{0};
  alignas(128) std::array<Slot, ring_slots> slots;
};

/// The offset of the ring to each rank of the World, 0 until it is made.
using RingOffset = std::atomic<std::uint64_t>;

/// How the two sides of one larger message talk about it. It belongs to the sender until it is
/// announced, and again once the receiver has stored `taken`; between, each word has one writer.
struct alignas(128) Parcel {
  /// By the sender: it has taken the message back. What is still read of it is not to be used.
  std::atomic<std::uint32_t> withdrawn{0};
  /// By the sender, of an ordinary message: where its stream is, and the chunks put there so far.
  std::atomic<std::uint64_t> stream{0};
  std::atomic<std::uint64_t> filled{0};

  /// By the receiver: it wants an ordinary message, and has read this many chunks of it.
  alignas(64) std::atomic<std::uint32_t> wanted{0};
  std::atomic<std::uint64_t> emptied{0};
  /// By the receiver, last: it reads nothing of the message any more.
  std::atomic<std::uint32_t> taken{0};
};
static_assert(sizeof(Parcel) == 128);

/// What a slot says about a larger message.
struct Announcement {
  std::uint64_t bytes = 0;
  std::uint64_t parcel = 0;
  std::uint64_t arena = 0;  ///< where the message begins in the sender's arena, if it does
};
static_assert(sizeof(Announcement) <= inline_bytes);

/// A parcel with room for a message right behind it.
inline constexpr std::size_t box_bytes = 8192;
struct Box {
  Parcel parcel;
  std::array<std::byte, box_bytes> message{};
};

/// The room through which an ordinary message flows, chunk by chunk.
inline constexpr std::size_t chunk_bytes = std::size_t{64} << 10U;
inline constexpr std::uint64_t stream_chunks = 4;
inline constexpr std::size_t stream_bytes = chunk_bytes * stream_chunks;

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace rondo::transport::links::shm

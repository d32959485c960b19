// Rings of messages between two ranks of a node: one writer, one reader, no locks.
//
// The lap bit in a slot's word tells the reader that the slot is filled, so both usually touch the
// slot alone. The writer reads `consumed` only when the ring seems full.

#include "links/shm/ring.hpp"

#include <cstring>
#include <new>

namespace rondo::transport::shm_link {
namespace {

constexpr unsigned kind_shift = 1;
constexpr unsigned bytes_shift = 8;
constexpr unsigned tag_shift = 16;
constexpr std::uint64_t lap_bit = 1;
constexpr std::uint64_t kind_mask = 0x7F;
constexpr std::uint64_t bytes_mask = 0xFF;

// The first lap has the bit set: fresh memory is zero, and holds no message.
constexpr std::uint64_t lap_of(std::uint64_t slot) noexcept {
  return (slot / ring_slots & lap_bit) ^ lap_bit;
}

}  // namespace

// All links of a rank share its table of rings.
RingOffset* make_rings(shm::RankMemory& mine, std::size_t ranks) {
  // Relaxed: only this rank stores it. Another link of its made the table; they share no peer.
  const std::uint64_t made = mine.header().rings.load(std::memory_order_relaxed);
  if (made != 0) return std::launder(reinterpret_cast<RingOffset*>(mine.control().base() + made));
  const std::uint64_t offset = shm::append(mine.control(), ranks * sizeof(RingOffset));
  std::byte* base = mine.control().base() + offset;
  auto* rings = ::new (base) RingOffset(0);
  for (std::size_t r = 1; r < ranks; ++r) ::new (base + r * sizeof(RingOffset)) RingOffset(0);
  // Release: whoever finds the table finds it empty, not unmade.
  mine.header().rings.store(offset, std::memory_order_release);
  return rings;
}

Ring& make_ring(shm::RankMemory& mine, RingOffset* rings, int rank) {
  const std::uint64_t offset = shm::append(mine.control(), sizeof(Ring));
  auto* ring = ::new (mine.control().base() + offset) Ring;
  // Release: whoever finds the ring finds it empty, not unmade.
  rings[rank].store(offset, std::memory_order_release);
  return *ring;
}

Ring* find_ring(shm::RankMemory& memory, int rank) noexcept {
  std::byte* base = memory.control().base();
  // Acquire, both: pair with the releases above.
  const std::uint64_t table = memory.header().rings.load(std::memory_order_acquire);
  if (table == 0) return nullptr;
  const auto* rings = std::launder(reinterpret_cast<RingOffset*>(base + table));
  const std::uint64_t offset = rings[rank].load(std::memory_order_acquire);
  return offset == 0 ? nullptr : std::launder(reinterpret_cast<Ring*>(base + offset));
}

bool RingWriter::full() noexcept {
  if (pushed_ - consumed_ < ring_slots) return false;
  // Acquire: the receiver's reads of a slot come before the stores that fill it again.
  consumed_ = ring_->consumed.load(std::memory_order_acquire);
  return pushed_ - consumed_ == ring_slots;
}

bool RingWriter::crowded() const noexcept {
  // Relaxed: it asks for something, and orders nothing.
  return ring_->crowded.load(std::memory_order_relaxed) != 0;
}

void RingWriter::push(SlotKind kind, std::uint64_t tag,
                      std::span<const std::byte> payload) noexcept {
  RingSlot& slot = ring_->slots[pushed_ % ring_slots];
  if (!payload.empty()) std::memcpy(slot.payload.data(), payload.data(), payload.size());
  const std::uint64_t word = tag << tag_shift | payload.size() << bytes_shift |
                             static_cast<std::uint64_t>(kind) << kind_shift | lap_of(pushed_);
  // Release: a receiver that finds the word sees the payload and all that it speaks of.
  slot.word.store(word, std::memory_order_release);
  pushed_ += 1;
}

bool RingReader::filled(std::uint64_t message) const noexcept {
  // Relaxed: front() reads the word again.
  const auto word = ring_->slots[message % ring_slots].word.load(std::memory_order_relaxed);
  return (word & lap_bit) == lap_of(message);
}

RingReader::Front RingReader::front() const noexcept {
  const RingSlot& slot = ring_->slots[popped_ % ring_slots];
  // Acquire: pairs with the release in push().
  const std::uint64_t word = slot.word.load(std::memory_order_acquire);
  return {.kind = static_cast<SlotKind>(word >> kind_shift & kind_mask),
          .tag = word >> tag_shift,
          .payload = std::span(slot.payload).first(word >> bytes_shift & bytes_mask)};
}

void RingReader::pop() noexcept {
  popped_ += 1;
  // Release: the reads of the slot come before the sender fills it again.
  ring_->consumed.store(popped_, std::memory_order_release);
}

void RingReader::set_crowded(bool crowded) noexcept {
  ring_->crowded.store(crowded ? 1 : 0, std::memory_order_relaxed);
}

}  // namespace rondo::transport::shm_link

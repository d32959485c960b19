#include "links/shm/ring.hpp"

#include <cstring>

namespace rondo::transport::links::shm {
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

bool RingWriter::full() noexcept {
  if (pushed_ - taken_ < ring_slots) return false;
  // Acquire: the receiver's reads of a slot come before the stores that fill it again.
  taken_ = ring_->taken.load(std::memory_order_acquire);
  return pushed_ - taken_ == ring_slots;
}

bool RingWriter::crowded() const noexcept {
  // Relaxed: a wish, which orders nothing.
  return ring_->crowded.load(std::memory_order_relaxed) != 0;
}

void RingWriter::push(Kind kind, std::uint64_t tag, std::span<const std::byte> payload) noexcept {
  Slot& slot = ring_->slots[pushed_ % ring_slots];
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
  const Slot& slot = ring_->slots[popped_ % ring_slots];
  // Acquire: pairs with the release in push().
  const std::uint64_t word = slot.word.load(std::memory_order_acquire);
  return {.kind = static_cast<Kind>(word >> kind_shift & kind_mask),
          .tag = word >> tag_shift,
          .payload = std::span(slot.payload).first(word >> bytes_shift & bytes_mask)};
}

void RingReader::pop() noexcept {
  popped_ += 1;
  // Release: the reads of the slot come before the sender fills it again.
  ring_->taken.store(popped_, std::memory_order_release);
}

void RingReader::set_crowded(bool crowded) noexcept {
  ring_->crowded.store(crowded ? 1 : 0, std::memory_order_relaxed);
}

}  // namespace rondo::transport::links::shm

#include "links/shm/peer.hpp"

#include <new>

namespace rondo::transport::links::shm {

RingOffset* make_rings(transport::shm::RankMemory& mine, std::size_t ranks) {
  // Relaxed: only this rank stores it. Another link of its made the table; they share no peer.
  const std::uint64_t made = mine.header().rings.load(std::memory_order_relaxed);
  if (made != 0) return std::launder(reinterpret_cast<RingOffset*>(mine.control().base() + made));
  const std::uint64_t offset = transport::shm::append(mine.control(), ranks * sizeof(RingOffset));
  std::byte* base = mine.control().base() + offset;
  auto* rings = ::new (base) RingOffset(0);
  for (std::size_t r = 1; r < ranks; ++r) ::new (base + r * sizeof(RingOffset)) RingOffset(0);
  // Release: whoever finds the table finds it empty, not unmade.
  mine.header().rings.store(offset, std::memory_order_release);
  return rings;
}

Ring& make_ring(transport::shm::RankMemory& mine, RingOffset* rings, int rank) {
  const std::uint64_t offset = transport::shm::append(mine.control(), sizeof(Ring));
  auto* ring = ::new (mine.control().base() + offset) Ring;
  // Release: whoever finds the ring finds it empty, not unmade.
  rings[rank].store(offset, std::memory_order_release);
  return *ring;
}

Ring* find_ring(const Peer& peer, int rank) noexcept {
  std::byte* base = peer.memory->control().base();
  // Acquire, both: pair with the releases above.
  const std::uint64_t table = peer.memory->header().rings.load(std::memory_order_acquire);
  if (table == 0) return nullptr;
  const auto* rings = std::launder(reinterpret_cast<RingOffset*>(base + table));
  const std::uint64_t offset = rings[rank].load(std::memory_order_acquire);
  return offset == 0 ? nullptr : std::launder(reinterpret_cast<Ring*>(base + offset));
}

}  // namespace rondo::transport::links::shm

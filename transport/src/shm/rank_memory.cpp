#include "shm/rank_memory.hpp"

#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

#include <rondo/transport/error.hpp>

#include "shm/remote_access.hpp"

namespace rondo::transport::shm {
namespace {

constexpr std::size_t gibibyte = std::size_t{1} << 30U;
// Half of what x86-64 and arm64 give a process with four-level page tables.
constexpr std::size_t address_space = std::size_t{64} << 40U;

std::size_t machine_bytes() {
  return static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

Reserve Reserve::of(int ranks) {
  const std::size_t share = address_space / static_cast<std::size_t>(ranks);
  const std::size_t memory = (machine_bytes() / gibibyte + 1) * gibibyte;
  return {.control_bytes = gibibyte, .arena_bytes = std::min(memory, share)};
}

std::shared_ptr<RankMemory> RankMemory::create(const Reserve& reserve, std::uint64_t nonce) {
  auto memory = std::make_shared<RankMemory>();
  memory->control_ = Segment::create("rondo-control", reserve.control_bytes);
  memory->arena_ = Segment::create("rondo-arena", reserve.arena_bytes);
  memory->control_.grow(world_up_block + sizeof(ControlBlock));
  auto* header = ::new (memory->control_.base()) RankHeader;
  header->nonce = nonce;
  header->light_fences = offer_light_fences();
  for (const std::uint64_t offset : {world_block, world_up_block}) {
    auto* block = ::new (memory->control_.base() + offset) ControlBlock;
    // The first operation has the sequence slot_count: a fresh slot's 0 is none's.
    block->consumed.store(slot_count - 1, std::memory_order_relaxed);
  }
  return memory;
}

std::shared_ptr<RankMemory> RankMemory::map(Descriptor control, Descriptor arena,
                                            const Reserve& reserve, std::uint64_t nonce) {
  auto memory = std::make_shared<RankMemory>();
  memory->control_ = Segment::map(std::move(control), reserve.control_bytes);
  memory->arena_ = Segment::map(std::move(arena), reserve.arena_bytes);
  if (memory->header().nonce != nonce) {
    throw Error(Errc::rendezvous_failed, "a peer's shared memory is not its own");
  }
  return memory;
}

RankHeader& RankMemory::header() const noexcept {
  return *std::launder(reinterpret_cast<RankHeader*>(control_.base()));
}

ControlBlock& RankMemory::block(std::uint64_t offset) const noexcept {
  return *std::launder(reinterpret_cast<ControlBlock*>(control_.base() + offset));
}

std::uint64_t append(Segment& control, std::size_t bytes) {
  constexpr std::size_t page = 4096;
  const std::size_t offset = (control.size() + page - 1) / page * page;
  control.grow(offset + bytes);
  return offset;
}

}  // namespace rondo::transport::shm

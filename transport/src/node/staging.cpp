#include "node/staging.hpp"

namespace rondo::transport {
namespace {

bool reached(const Group& group, std::atomic<std::uint64_t> shm::ControlBlock::* flag,
             std::uint64_t rounds) {
  for (std::size_t r = 0; r < group.count(); ++r) {
    // Acquire: what the peer wrote before it raised the flag is read next; and, for staged_read,
    // its reads come before the store that reuses the buffer.
    if (r != group.index() &&
        (group.members[r].block->*flag).load(std::memory_order_acquire) < rounds) {
      return false;
    }
  }
  return true;
}

}  // namespace

void make_staging(Group& group) {
  const Member& me = group.members[group.index()];
  if (me.block->staging.load(std::memory_order_relaxed) != 0) return;
  const std::uint64_t offset = shm::append(me.memory->control(), staging_buffers * staging_bytes);
  // Relaxed: staged_filled, stored later with release, makes it visible.
  me.block->staging.store(offset, std::memory_order_relaxed);
}

std::byte* staging_of(const Member& member, std::uint64_t round) noexcept {
  return member.memory->control().base() + member.block->staging.load(std::memory_order_relaxed) +
         (round % staging_buffers) * staging_bytes;
}

bool staging_is_free(const Group& group, std::uint64_t round) noexcept {
  return round < staging_buffers ||
         reached(group, &shm::ControlBlock::staged_read, round - staging_buffers + 1);
}

bool all_beyond(const Group& group, std::atomic<std::uint64_t> shm::ControlBlock::* flag,
                std::uint64_t round) noexcept {
  return reached(group, flag, round + 1);
}

void publish(Group& group, std::atomic<std::uint64_t> shm::ControlBlock::* flag,
             std::uint64_t rounds) noexcept {
  // Release: everything this rank wrote into (or read from) the buffers comes first.
  (group.mine().*flag).store(rounds, std::memory_order_release);
  group.published = true;
}

}  // namespace rondo::transport

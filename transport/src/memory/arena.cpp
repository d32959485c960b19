// The arena: the part of a rank's shared memory that user code allocates from. Which ranges are in
// use is kept in ordinary memory, because peers write into the arena. When an operation fails while
// a peer is stopped in the middle of a step, the peer may still store into the buffers of that
// operation; they are in quarantine until it cannot.

#include "memory/arena.hpp"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <string>
#include <utility>

#include <rondo/transport/error.hpp>
#include <rondo/transport/world.hpp>

#include "base/cache_line.hpp"

namespace rondo::transport {
namespace {

// Growing takes system calls, and links may register the new memory: not for every small block.
constexpr std::size_t growth_bytes = std::size_t{2} << 20U;
// To which a segment begins.
constexpr std::size_t largest_alignment = std::size_t{2} << 20U;

[[noreturn]] void throw_exhausted(std::size_t bytes) {
  throw Error(Errc::out_of_memory,
              "shared arena: it has no room for " + std::to_string(bytes) + " bytes");
}

}  // namespace

// First fit. Bytes that alignment skips, and those left at the end, stay free.
std::size_t RangeAllocator::allocate(std::size_t bytes, std::size_t alignment) {
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    const auto [begin, length] = *range;
    const std::size_t offset = round_up(begin, alignment);
    const std::size_t skipped = offset - begin;
    if (skipped > length || bytes > length - skipped) continue;
    free_.erase(range);
    if (skipped > 0) free_.emplace(begin, skipped);
    if (skipped + bytes < length) free_.emplace(offset + bytes, length - skipped - bytes);
    live_.emplace(offset, bytes);
    used_ += bytes;
    return offset;
  }
  return npos;
}

void RangeAllocator::deallocate(std::size_t offset) {
  const auto range = live_.find(offset);
  if (range == live_.end()) return;
  const std::size_t bytes = range->second;
  live_.erase(range);
  used_ -= bytes;
  release(offset, bytes);
}

std::size_t RangeAllocator::bytes_at(std::size_t offset) const noexcept {
  const auto range = live_.find(offset);
  return range == live_.end() ? 0 : range->second;
}

std::size_t RangeAllocator::free_at_end() const noexcept {
  if (free_.empty()) return 0;
  const auto& [offset, bytes] = *free_.rbegin();
  return offset + bytes == limit_ ? bytes : 0;
}

// The new range is joined with a free range at the old end.
void RangeAllocator::extend(std::size_t limit) {
  if (limit <= limit_) return;
  release(limit_, limit - limit_);
  limit_ = limit;
}

// Joined with the free ranges before and after it, so that two free ranges never touch.
void RangeAllocator::release(std::size_t offset, std::size_t bytes) {
  auto range = free_.emplace(offset, bytes).first;
  if (const auto after = std::next(range); after != free_.end() && offset + bytes == after->first) {
    range->second += after->second;
    free_.erase(after);
  }
  if (range == free_.begin()) return;
  const auto before = std::prev(range);
  if (before->first + before->second != offset) return;
  before->second += range->second;
  free_.erase(range);
}

void* ArenaCore::allocate(std::size_t bytes, std::size_t alignment) {
  // Before anything is added to it, which could overflow.
  if (bytes > memory_->arena().reserved()) throw_exhausted(bytes);
  // Whole lines: stores into the block beside it never share one with this block.
  const std::size_t size = round_up(std::max<std::size_t>(bytes, 1), cache_line_bytes);
  const std::size_t aligned = std::max(alignment, cache_line_bytes);
  if (aligned > largest_alignment) {
    throw Error(Errc::out_of_memory, "shared arena: memory is aligned to at most 2 MiB");
  }
  // Rare: quarantines exist only after a failure in which a peer was stopped.
  if (!quarantines_.empty()) end_quarantines();
  std::size_t offset = ranges_.allocate(size, aligned);
  if (offset == RangeAllocator::npos) {
    grow(size + aligned);
    offset = ranges_.allocate(size, aligned);
    if (offset == RangeAllocator::npos) throw_exhausted(bytes);
  }
  return memory_->arena().base() + offset;
}

// By whole steps, so that `bytes` are free at the end. The links are told before a send from there
// is possible: some register memory.
void ArenaCore::grow(std::size_t bytes) {
  const std::size_t before = ranges_.limit();
  const std::size_t wanted = before - std::min(bytes, ranges_.free_at_end()) + bytes;
  const std::size_t limit = round_up(wanted, growth_bytes);
  shm::Segment& segment = memory_->arena();
  segment.grow(limit);
  if (on_growth_) on_growth_({segment.base() + before, limit - before});
  ranges_.extend(limit);
}

// A block in quarantine stays allocated until end_quarantines() frees it.
void ArenaCore::deallocate(void* data) {
  const auto offset =
      static_cast<std::size_t>(static_cast<std::byte*>(data) - memory_->arena().base());
  if (!quarantines_.empty()) end_quarantines();
  if (quarantined(offset)) {
    freed_.push_back(offset);
  } else {
    ranges_.deallocate(offset);
  }
}

// Ranges may overlap, and need not be those that were handed out.
void ArenaCore::quarantine(std::size_t offset, std::size_t bytes, std::function<bool()> over) {
  quarantines_.push_back({.begin = offset, .end = offset + bytes, .over = std::move(over)});
}

// Called when memory is allocated or freed: until then it does not matter that a peer went on.
void ArenaCore::end_quarantines() {
  if (std::erase_if(quarantines_, [](const Quarantine& held) { return held.over(); }) == 0) return;
  std::erase_if(freed_, [this](std::size_t offset) {
    if (quarantined(offset)) return false;
    ranges_.deallocate(offset);
    return true;
  });
}

// Is any of the range handed out at `offset` in quarantine?
bool ArenaCore::quarantined(std::size_t offset) const noexcept {
  const std::size_t end = offset + ranges_.bytes_at(offset);
  return std::ranges::any_of(
      quarantines_, [&](const Quarantine& held) { return held.begin < end && offset < held.end; });
}

bool ArenaCore::contains(const void* data, std::size_t bytes) const noexcept {
  return offset_of(resolve(static_cast<const std::byte*>(data), bytes), bytes) !=
         shm::private_memory;
}

// Compared as numbers: pointers into different objects must not be.
std::uint64_t ArenaCore::offset_of(const void* data, std::size_t bytes) const noexcept {
  const auto base = reinterpret_cast<std::uintptr_t>(memory_->arena().base());
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const std::size_t size = memory_->arena().size();
  if (address < base || address - base > size || bytes > size - (address - base)) {
    return shm::private_memory;
  }
  return address - base;
}

SharedArena::SharedArena(std::unique_ptr<ArenaCore> core) noexcept : core_(std::move(core)) {}

SharedArena::~SharedArena() = default;

bool SharedArena::contains(const void* data, std::size_t bytes) const noexcept {
  const auto entry = core_->lock().reading();
  return core_->contains(data, bytes);
}

std::size_t SharedArena::used_bytes() const noexcept {
  const auto entry = core_->lock().reading();
  return core_->used_bytes();
}

void* SharedArena::do_allocate(std::size_t bytes, std::size_t alignment) {
  const std::lock_guard entry(core_->lock());
  return core_->allocate(bytes, alignment);
}

void SharedArena::do_deallocate(void* data, std::size_t /*bytes*/, std::size_t /*alignment*/) {
  if (core_->lock().is_copy()) return;
  const std::lock_guard entry(core_->lock());
  core_->deallocate(data);
}

// No other arena can free what this one has allocated.
bool SharedArena::do_is_equal(const std::pmr::memory_resource& other) const noexcept {
  return this == &other;
}

}  // namespace rondo::transport

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/world_lock.hpp"
#include "memory/memory.hpp"

namespace rondo::transport {

/// Hands out ranges of [0, limit()): first fit; neighbours are joined when they are freed. Its own
/// data lies outside the range, so it can manage memory that others write to.
class RangeAllocator {
 public:
  /// Offset of `bytes` free bytes aligned to `alignment` (a power of two), or npos.
  [[nodiscard]] std::size_t allocate(std::size_t bytes, std::size_t alignment);
  void deallocate(std::size_t offset);
  /// Bytes of the range handed out at `offset`; 0 when there is none.
  [[nodiscard]] std::size_t bytes_at(std::size_t offset) const noexcept;
  /// Adds [limit(), limit) to what can be handed out.
  void extend(std::size_t limit);

  [[nodiscard]] std::size_t limit() const noexcept { return limit_; }
  /// Free bytes just below limit().
  [[nodiscard]] std::size_t free_at_end() const noexcept;
  [[nodiscard]] std::size_t used_bytes() const noexcept { return used_; }

  static constexpr std::size_t npos = ~std::size_t{0};

 private:
  void release(std::size_t offset, std::size_t bytes);

  std::map<std::size_t, std::size_t> free_;  // offset -> bytes
  std::map<std::size_t, std::size_t> live_;  // offset -> bytes
  std::size_t limit_ = 0;
  std::size_t used_ = 0;
};

/// The implementation of a SharedArena: the rank's segment and which ranges of it are in use.
class ArenaCore {
 public:
  /// `on_growth` is told of all memory that the arena grows by, before any of it is handed out.
  using Growth = std::function<void(std::span<std::byte>)>;

  /// `lock`, if any, is taken by the public calls of the arena; lent.
  explicit ArenaCore(std::shared_ptr<shm::RankMemory> memory, Growth on_growth = {},
                     WorldLock* lock = nullptr)
      : memory_(std::move(memory)),
        on_growth_(std::move(on_growth)),
        lock_(lock != nullptr ? lock : &own_lock_) {}

  [[nodiscard]] WorldLock& lock() const noexcept { return *lock_; }

  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment);
  void deallocate(void* data);
  /// A peer may still store into [offset, offset + bytes): until `over` says that it cannot, what
  /// is freed there is not handed out again.
  void quarantine(std::size_t offset, std::size_t bytes, std::function<bool()> over);

  /// Replaces the pages of `memory` by pages of the arena with the same contents; these pages. See
  /// World::adopt(). In adoption.cpp, as the next three.
  [[nodiscard]] std::span<std::byte> adopt(std::span<std::byte> memory);
  /// Makes `pages` ordinary memory again. False if the kernel has no memory for it.
  [[nodiscard]] static bool make_private(std::span<std::byte> pages) noexcept;
  /// Ends an adoption: `pages` leave the arena, unless they could not be `made_private`.
  void forget(std::span<std::byte> pages, bool made_private) noexcept;
  /// The address in the arena of [data, data + bytes) where that lies in adopted memory; else
  /// `data` itself.
  template <typename Byte>
  [[nodiscard]] Byte* resolve(Byte* data, std::size_t bytes) const noexcept {
    if (adopted_.empty()) return data;
    return const_cast<Byte*>(look_up_adopted(data, bytes));
  }

  /// In the arena itself, or in adopted memory?
  [[nodiscard]] bool contains(const void* data, std::size_t bytes) const noexcept;
  /// The offset of `data` in the arena, or shm::private_memory.
  [[nodiscard]] std::uint64_t offset_of(const void* data, std::size_t bytes) const noexcept;
  [[nodiscard]] std::size_t used_bytes() const noexcept { return ranges_.used_bytes(); }

 private:
  struct Quarantine {
    std::size_t begin;
    std::size_t end;
    std::function<bool()> over;
  };

  // The caller's memory, which lies somewhere on the pages that were replaced: other data on them
  // stays ordinary memory for operations, because its owner does not know of the release.
  struct Adopted {
    std::size_t before;  // bytes of the first page before the memory
    std::size_t bytes;
    std::size_t offset;  // of the first page, in the arena
  };

  void grow(std::size_t bytes);
  [[nodiscard]] const std::byte* look_up_adopted(const std::byte* data,
                                                 std::size_t bytes) const noexcept;
  void end_quarantines();
  [[nodiscard]] bool quarantined(std::size_t offset) const noexcept;

  std::shared_ptr<shm::RankMemory> memory_;
  Growth on_growth_;
  WorldLock own_lock_{false};
  WorldLock* lock_;
  RangeAllocator ranges_;
  std::vector<Quarantine> quarantines_;
  std::vector<std::size_t> freed_;             // ranges that are freed, but in quarantine
  std::map<std::uintptr_t, Adopted> adopted_;  // by the address of the first page
};

}  // namespace rondo::transport

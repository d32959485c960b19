#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/range_allocator.hpp"
#include "shm/rank_memory.hpp"

namespace rondo::transport {

/// What is behind a SharedArena: the rank's segment and who has which part of it.
class ArenaCore {
 public:
  /// `on_growth` is told of all memory that the arena grows by, before any of it is handed out.
  using Growth = std::function<void(std::span<std::byte>)>;

  explicit ArenaCore(std::shared_ptr<shm::RankMemory> memory, Growth on_growth = {})
      : memory_(std::move(memory)), on_growth_(std::move(on_growth)) {}

  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment);
  void deallocate(void* data);
  /// A peer may still store into [offset, offset + bytes): until `over` says that it cannot, what
  /// is freed there is not handed out again.
  void quarantine(std::size_t offset, std::size_t bytes, std::function<bool()> over);
  [[nodiscard]] bool contains(const void* data, std::size_t bytes) const noexcept;
  /// Where `data` lies in the arena, or shm::private_memory.
  [[nodiscard]] std::uint64_t offset_of(const void* data, std::size_t bytes) const noexcept;
  [[nodiscard]] std::size_t used_bytes() const noexcept { return ranges_.used_bytes(); }

 private:
  struct Quarantine {
    std::size_t begin;
    std::size_t end;
    std::function<bool()> over;
  };

  void grow(std::size_t bytes);
  void end_quarantines();
  [[nodiscard]] bool quarantined(std::size_t offset) const noexcept;

  std::shared_ptr<shm::RankMemory> memory_;
  Growth on_growth_;
  RangeAllocator ranges_;
  std::vector<Quarantine> quarantines_;
  std::vector<std::size_t> freed_;  // ranges that are freed, but in quarantine
};

}  // namespace rondo::transport

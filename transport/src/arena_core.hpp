#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "range_allocator.hpp"
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
  [[nodiscard]] bool contains(const void* data, std::size_t bytes) const noexcept;
  /// Where `data` lies in the arena, or shm::private_memory.
  [[nodiscard]] std::uint64_t offset_of(const void* data, std::size_t bytes) const noexcept;
  [[nodiscard]] std::size_t used_bytes() const noexcept { return ranges_.used_bytes(); }

 private:
  void grow(std::size_t bytes);

  std::shared_ptr<shm::RankMemory> memory_;
  Growth on_growth_;
  RangeAllocator ranges_;
};

}  // namespace rondo::transport

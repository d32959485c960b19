#pragma once

#include <cstddef>
#include <map>

namespace rondo::transport {

/// Hands out ranges of [0, limit()): first fit, with neighbours joined when they are freed.
/// Keeps its books outside the range, so it can manage memory that others write to.
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
  [[nodiscard]] std::size_t used_bytes() const noexcept { return used_; }

  static constexpr std::size_t npos = ~std::size_t{0};

 private:
  void release(std::size_t offset, std::size_t bytes);

  std::map<std::size_t, std::size_t> free_;  // offset -> bytes
  std::map<std::size_t, std::size_t> live_;  // offset -> bytes
  std::size_t limit_ = 0;
  std::size_t used_ = 0;
};

}  // namespace rondo::transport

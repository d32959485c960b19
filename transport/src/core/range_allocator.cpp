#include "core/range_allocator.hpp"

#include <iterator>

namespace rondo::transport {

std::size_t RangeAllocator::allocate(std::size_t bytes, std::size_t alignment) {
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    const auto [begin, length] = *range;
    const std::size_t offset = (begin + alignment - 1) & ~(alignment - 1);
    const std::size_t skipped = offset - begin;
    if (skipped + bytes > length) continue;
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

void RangeAllocator::extend(std::size_t limit) {
  if (limit <= limit_) return;
  release(limit_, limit - limit_);
  limit_ = limit;
}

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

}  // namespace rondo::transport

#include "executor/reused_memory.hpp"

#include <new>

namespace rondo::train {
namespace {

constexpr std::size_t block_alignment = 64;

}  // namespace

ReusedMemory::~ReusedMemory() {
  for (const Block& block : blocks_) {
    upstream_->deallocate(block.data, block.bytes, block_alignment);
  }
}

void ReusedMemory::rewind() {
  free_.clear();
  for (const Block& block : blocks_) free_.emplace(block.bytes, block.data);
}

// The smallest block that is large enough: then users that want no more than the first one, piece
// by piece, find room in its blocks in whichever order they ask.
void* ReusedMemory::do_allocate(std::size_t bytes, std::size_t alignment) {
  if (alignment > block_alignment) throw std::bad_alloc();
  const auto fitting = free_.lower_bound(bytes);
  if (fitting != free_.end()) {
    void* const data = fitting->second;
    free_.erase(fitting);
    return data;
  }
  blocks_.reserve(blocks_.size() + 1);  // before, so that nothing is lost where that fails
  void* const data = upstream_->allocate(bytes, block_alignment);
  blocks_.push_back({data, bytes});
  return data;
}

}  // namespace rondo::train

// The memory of a rank: an account of all that its arrays take, which refuses what exceeds the
// limit and says what wanted it; and memory that kernels which never run at the same time share.

#include "executor/memory.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include <rondo/train/experiment.hpp>

namespace rondo::train {
namespace {

constexpr std::size_t block_alignment = 64;

}  // namespace

void MemoryAccount::add(std::size_t bytes) {
  const bool fits = limit_ == 0 || (bytes <= limit_ && in_use_ <= limit_ - bytes);
  if (!fits) {
    throw ConfigError("train.memory_limit: " + purpose_ + " wants " + std::to_string(bytes) +
                      " bytes, and " + std::to_string(in_use_) + " of the " +
                      std::to_string(limit_) +
                      " allowed to a rank are in use; start more ranks, split layers by [grid], "
                      "or lower train.global_batch");
  }
  in_use_ += bytes;
  peak_ = std::max(peak_, in_use_);
}

void* AccountedMemory::do_allocate(std::size_t bytes, std::size_t alignment) {
  account_.add(bytes);
  try {
    return upstream_->allocate(bytes, alignment);
  } catch (...) {
    account_.remove(bytes);
    throw;
  }
}

void AccountedMemory::do_deallocate(void* memory, std::size_t bytes, std::size_t alignment) {
  upstream_->deallocate(memory, bytes, alignment);
  account_.remove(bytes);
}

MemoryScope::MemoryScope(std::pmr::memory_resource* memory, const std::string& purpose) {
  auto* const accounted = dynamic_cast<AccountedMemory*>(memory);
  if (accounted == nullptr) return;
  // Memory of another kind is not accounted, so there is no message to help with.
  account_ = &accounted->account();
  before_ = account_->set_purpose(purpose);
}

MemoryScope::~MemoryScope() {
  if (account_ != nullptr) account_->set_purpose(std::move(before_));
}

// Users must be gone by then: they only borrow the blocks.
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

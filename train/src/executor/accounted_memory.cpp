#include "executor/accounted_memory.hpp"

#include <utility>

namespace rondo::train {

void* AccountedMemory::do_allocate(std::size_t bytes, std::size_t alignment) {
  account_.take(bytes);
  try {
    return upstream_->allocate(bytes, alignment);
  } catch (...) {
    account_.give_back(bytes);
    throw;
  }
}

void AccountedMemory::do_deallocate(void* memory, std::size_t bytes, std::size_t alignment) {
  upstream_->deallocate(memory, bytes, alignment);
  account_.give_back(bytes);
}

MemoryScope::MemoryScope(std::pmr::memory_resource* memory, const std::string& purpose) {
  auto* const accounted = dynamic_cast<AccountedMemory*>(memory);
  if (accounted == nullptr) return;
  account_ = &accounted->account();
  before_ = account_->set_purpose(purpose);
}

MemoryScope::~MemoryScope() {
  if (account_ != nullptr) account_->set_purpose(std::move(before_));
}

}  // namespace rondo::train

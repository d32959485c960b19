#pragma once

#include <memory_resource>
#include <string>

#include "executor/memory_account.hpp"

namespace rondo::train {

/// Memory of another resource, booked in an account. Both are lent.
class AccountedMemory final : public std::pmr::memory_resource {
 public:
  explicit AccountedMemory(MemoryAccount& account, std::pmr::memory_resource* upstream =
                                                       std::pmr::get_default_resource()) noexcept
      : account_(account), upstream_(upstream) {}

  [[nodiscard]] MemoryAccount& account() noexcept { return account_; }

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* memory, std::size_t bytes, std::size_t alignment) override;
  [[nodiscard]] bool do_is_equal(const memory_resource& other) const noexcept override {
    return this == &other;
  }

  MemoryAccount& account_;
  std::pmr::memory_resource* upstream_;
};

/// While it lives, what is taken from `memory` is for `purpose`, as in "layer conv1"; only
/// AccountedMemory takes notice.
class MemoryScope {
 public:
  MemoryScope(std::pmr::memory_resource* memory, const std::string& purpose);
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;
  ~MemoryScope();

 private:
  MemoryAccount* account_ = nullptr;  // null: nobody takes notice
  std::string before_ = {};
};

}  // namespace rondo::train

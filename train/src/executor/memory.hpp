#pragma once

#include <cstddef>
#include <map>
#include <memory_resource>
#include <string>
#include <utility>
#include <vector>

namespace rondo::train {

/// How much memory a rank's arrays take, and the most that they may take together. Belongs to one
/// thread at a time.
class MemoryAccount {
 public:
  /// `limit` in bytes; 0: none.
  explicit MemoryAccount(std::size_t limit = 0) : limit_(limit) {}

  /// Throws ConfigError, and adds nothing, where the limit would be exceeded: it names what the
  /// bytes are for, and says how to need fewer.
  void add(std::size_t bytes);
  void remove(std::size_t bytes) noexcept { in_use_ -= bytes; }

  /// For messages, what the next bytes are for; returns what they were for until now.
  std::string set_purpose(std::string purpose) {
    return std::exchange(purpose_, std::move(purpose));
  }

  [[nodiscard]] std::size_t in_use() const noexcept { return in_use_; }
  /// The most that was in use at once.
  [[nodiscard]] std::size_t peak() const noexcept { return peak_; }

 private:
  std::size_t limit_;
  std::size_t in_use_ = 0;
  std::size_t peak_ = 0;
  std::string purpose_ = "an array";
};

/// Memory of another resource, counted in an account. Both are lent.
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

/// While it lives, what is allocated from `memory` is for `purpose`, as in "layer conv1"; only
/// AccountedMemory notes it.
class MemoryScope {
 public:
  MemoryScope(std::pmr::memory_resource* memory, const std::string& purpose);
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;
  ~MemoryScope();

 private:
  MemoryAccount* account_ = nullptr;  // null: nobody notes it
  std::string before_ = {};
};

/// Memory for several users that are never active at the same time, such as the kernels of several
/// batch sizes: each is made between two calls of rewind(), and all get the same blocks.
///
/// What one user has left in a block another one may overwrite. Nothing is freed before the
/// end: users may go in any order.
class ReusedMemory final : public std::pmr::memory_resource {
 public:
  /// `upstream` is lent.
  explicit ReusedMemory(std::pmr::memory_resource* upstream) noexcept : upstream_(upstream) {}
  ReusedMemory(const ReusedMemory&) = delete;
  ReusedMemory& operator=(const ReusedMemory&) = delete;
  ~ReusedMemory() override;

  /// The next user begins: all blocks can be handed out again.
  void rewind();

 private:
  struct Block {
    void* data = nullptr;
    std::size_t bytes = 0;
  };

  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* /*memory*/, std::size_t /*bytes*/, std::size_t /*alignment*/) override {}
  [[nodiscard]] bool do_is_equal(const memory_resource& other) const noexcept override {
    return this == &other;
  }

  std::pmr::memory_resource* upstream_;
  std::vector<Block> blocks_;
  std::multimap<std::size_t, void*> free_;  // by bytes
};

}  // namespace rondo::train

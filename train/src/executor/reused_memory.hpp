#pragma once

#include <cstddef>
#include <map>
#include <memory_resource>
#include <vector>

namespace rondo::train {

/// Memory for several users that are never active at the same time, such as the kernels of several
/// batch sizes: each is made between two calls of rewind(), and all are given the same blocks.
///
/// What one user has left in a block another one may overwrite. Nothing is given back before the
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

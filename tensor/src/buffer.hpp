#pragma once

#include <cstddef>
#include <memory_resource>
#include <span>
#include <utility>

namespace rondo::tensor {

/// Raw memory from a resource, aligned to a cache line, not initialised (pages that nobody writes
/// cost nothing).
class Buffer {
 public:
  Buffer() noexcept = default;
  Buffer(std::pmr::memory_resource* memory, std::size_t bytes)
      : memory_(memory), bytes_(bytes), data_(allocate()) {}
  Buffer(Buffer&& other) noexcept
      : memory_(other.memory_),
        bytes_(std::exchange(other.bytes_, 0)),
        data_(std::exchange(other.data_, nullptr)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    std::swap(data_, other.data_);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (data_ != nullptr) memory_->deallocate(data_, bytes_, alignment);
  }

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] void* data() const noexcept { return data_; }
  template <typename T>
  [[nodiscard]] std::span<T> as() const noexcept {
    return {static_cast<T*>(data_), bytes_ / sizeof(T)};
  }

 private:
  static constexpr std::size_t alignment = 64;
  void* allocate() { return bytes_ == 0 ? nullptr : memory_->allocate(bytes_, alignment); }

  std::pmr::memory_resource* memory_ = nullptr;
  std::size_t bytes_ = 0;
  void* data_ = nullptr;
};

}  // namespace rondo::tensor

#pragma once

#include <cstddef>

#include "shm/descriptor.hpp"

namespace rondo::transport::shm {

/// One range of memory that several processes map, backed by a memfd.
///
/// The range that is reserved is large; memory is behind its first size() bytes only. The owner
/// grows it in place, and whoever has mapped it can use what it grew by without a word: an
/// address once given stays valid. It can never shrink (sealed), so no peer can be hit by SIGBUS.
class Segment {
 public:
  /// A new, empty segment. `name` shows up in /proc/PID/maps.
  [[nodiscard]] static Segment create(const char* name, std::size_t reserved_bytes);
  /// Maps another process' segment; takes the descriptor.
  [[nodiscard]] static Segment map(Descriptor memory, std::size_t reserved_bytes);

  Segment() noexcept = default;
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment();

  /// Puts memory behind the first `bytes` bytes, zeroed. Owner only. Throws
  /// Error(out_of_memory) when the reserve or the machine's memory is exhausted.
  void grow(std::size_t bytes);

  [[nodiscard]] std::byte* base() const noexcept { return base_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t reserved() const noexcept { return reserved_; }
  [[nodiscard]] int descriptor() const noexcept { return memory_.get(); }

 private:
  Segment(Descriptor memory, std::size_t reserved_bytes);

  Descriptor memory_;
  std::byte* base_ = nullptr;
  std::size_t size_ = 0;
  std::size_t reserved_ = 0;
};

}  // namespace rondo::transport::shm

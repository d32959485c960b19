#pragma once

#include <cstddef>
#include <memory>
#include <memory_resource>

#include <rondo/transport/export.hpp>

namespace rondo::transport {

class ArenaCore;

/// Memory that every rank of the node can reach: buffers allocated here are reduced in place.
///
/// A std::pmr::memory_resource, so `std::pmr::vector<float> gradients(n, &world.arena())` works.
/// Blocks are aligned to at least a cache line. It grows by itself, and peers see what it grows
/// by without being asked; what was freed is used again. Running out of memory throws
/// Error(Errc::out_of_memory).
///
/// Belongs to the World's thread, and lives as long as the World.
class RONDO_TRANSPORT_API SharedArena final : public std::pmr::memory_resource {
 public:
  explicit SharedArena(std::unique_ptr<ArenaCore> core) noexcept;
  SharedArena(const SharedArena&) = delete;
  SharedArena& operator=(const SharedArena&) = delete;
  ~SharedArena() override;

  /// Does all of [data, data + bytes) lie in this arena?
  [[nodiscard]] bool contains(const void* data, std::size_t bytes) const noexcept;

  /// Bytes handed out at the moment.
  [[nodiscard]] std::size_t used_bytes() const noexcept;

 private:
  friend class WorldCore;
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* data, std::size_t bytes, std::size_t alignment) override;
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override;

  std::unique_ptr<ArenaCore> core_;
};

}  // namespace rondo::transport

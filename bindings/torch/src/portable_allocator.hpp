#pragma once

#include <cstddef>

#include <c10/core/Allocator.h>
#include <torch/version.h>

namespace rondo::torch_backend {

/// c10::Allocator, which is not the same in all versions of PyTorch: since 2.3 allocate() is not
/// const, and an allocator has to copy. meson.build leaves the backend out where this does not
/// compile.
class PortableAllocator : public c10::Allocator {
 public:
  /// Makes the block that allocate() returns.
  [[nodiscard]] virtual c10::DataPtr make(std::size_t bytes) const = 0;

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
  c10::DataPtr allocate(std::size_t bytes) final { return make(bytes); }
  void copy_data(void* dest, const void* src, std::size_t count) const final {
    default_copy_data(dest, src, count);
  }
#else
  c10::DataPtr allocate(std::size_t bytes) const final { return make(bytes); }
#endif
};

}  // namespace rondo::torch_backend

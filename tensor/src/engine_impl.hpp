#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory_resource>

#include <oneapi/dnnl/dnnl.hpp>

#include <rondo/tensor/engine.hpp>

#include "buffer.hpp"
#include "team.hpp"

namespace rondo::tensor {

/// What the kernels of one engine share. The scratchpad and the two staging areas grow while
/// kernels are made and stay where they are while kernels run, one after another.
class Engine::Impl {
 public:
  Impl(int threads, std::pmr::memory_resource* memory)
      : threads_(threads), memory_(memory), cpu_(dnnl::engine::kind::cpu, 0), stream_(cpu_) {}

  [[nodiscard]] int threads() const noexcept { return threads_; }
  [[nodiscard]] std::pmr::memory_resource* memory() const noexcept { return memory_; }
  [[nodiscard]] const dnnl::engine& cpu() const noexcept { return cpu_; }
  [[nodiscard]] const dnnl::stream& stream() const noexcept { return stream_; }

  /// Before kernels are made or run on the calling thread.
  void enter() const { prepare_team(threads_); }

  void reserve_scratchpad(std::size_t bytes) { grow(scratchpad_, bytes); }
  [[nodiscard]] void* scratchpad() const noexcept { return scratchpad_.data(); }

  /// Room for dense copies of strided views: `slot` is 0 or 1. Only touched when one is needed.
  void reserve_staging(std::size_t slot, std::size_t floats) {
    grow(staging_.at(slot), floats * sizeof(float));
  }
  [[nodiscard]] float* staging(std::size_t slot) const noexcept {
    return static_cast<float*>(staging_[slot].data());
  }

 private:
  void grow(Buffer& buffer, std::size_t bytes) {
    if (bytes <= buffer.bytes()) return;
    buffer = Buffer();
    buffer = Buffer(memory_, bytes);
  }

  int threads_;
  std::pmr::memory_resource* memory_;
  dnnl::engine cpu_;
  dnnl::stream stream_;
  Buffer scratchpad_;
  std::array<Buffer, 2> staging_;
};

}  // namespace rondo::tensor

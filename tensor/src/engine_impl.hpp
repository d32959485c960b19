#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory_resource>

#include <oneapi/dnnl/dnnl.hpp>

#include <rondo/tensor/engine.hpp>

#include "buffer.hpp"
#include "team.hpp"

namespace rondo::tensor {

/// What the kernels of one engine share, because they run one after another. The scratchpad and
/// the reorder buffer grow while kernels are made and stay where they are while kernels run.
class Engine::Impl {
 public:
  Impl(int threads, std::pmr::memory_resource* memory)
      : threads_(threads),
        memory_(memory),
        layer_memory_(memory),
        cpu_(dnnl::engine::kind::cpu, 0),
        stream_(cpu_) {}

  [[nodiscard]] int threads() const noexcept { return threads_; }
  [[nodiscard]] std::pmr::memory_resource* memory() const noexcept { return memory_; }
  [[nodiscard]] std::pmr::memory_resource* layer_memory() const noexcept { return layer_memory_; }
  void set_layer_memory(std::pmr::memory_resource* memory) noexcept {
    layer_memory_ = memory == nullptr ? memory_ : memory;
  }
  [[nodiscard]] const dnnl::engine& cpu() const noexcept { return cpu_; }
  [[nodiscard]] const dnnl::stream& stream() const noexcept { return stream_; }

  /// Before kernels are made or run on the calling thread.
  void enter() const { prepare_team(threads_); }

  void reserve_scratchpad(std::size_t bytes) { grow(scratchpad_, bytes); }
  [[nodiscard]] void* scratchpad() const noexcept { return scratchpad_.data(); }

  /// Room for the weights of one layer between two layouts: mirrored ones while they are packed, a
  /// gradient from backward_weights() to unpack_gradients().
  void reserve_reorder_buffer(std::size_t bytes) { grow(reorder_buffer_, bytes); }
  [[nodiscard]] void* reorder_buffer() const noexcept { return reorder_buffer_.data(); }

  /// Room for the dense copy of a strided view: `slot` is 0 or 1. Few programs have such views, so
  /// the first one that needs as much takes the memory.
  [[nodiscard]] float* staging(std::size_t slot, std::int64_t floats) {
    grow(staging_.at(slot), static_cast<std::size_t>(floats) * sizeof(float));
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
  std::pmr::memory_resource* layer_memory_;
  dnnl::engine cpu_;
  dnnl::stream stream_;
  Buffer scratchpad_;
  Buffer reorder_buffer_;
  std::array<Buffer, 2> staging_;
};

}  // namespace rondo::tensor

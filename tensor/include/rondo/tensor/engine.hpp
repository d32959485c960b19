#pragma once

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <string>

#include <rondo/tensor/export.hpp>

namespace rondo::tensor {

/// How convolutions of 3x3 filters and stride 1 are computed in fp32.
enum class ConvolutionAlgorithm : std::uint8_t {
  direct,  ///< as defined; sums of small integers are exact
  /// By Winograd's F(4x4, 3x3), where that is faster: with a quarter of the multiplications and
  /// about three times the rounding error (Lavin and Gray, "Fast Algorithms for Convolutional
  /// Neural Networks", 2016).
  fast,
};

/// The resources that kernels run on: oneDNN's CPU engine and stream, the thread team, and what all
/// kernels of the engine share because they run one after the other: a scratchpad, and room for the
/// weights of one layer between two layouts.
///
/// - **Threads.** An Engine and its kernels belong to one thread at a time; that thread calls
///   them, and each call uses `threads` OpenMP threads. Builds without OpenMP run our own
///   kernels on the calling thread.
/// - **Denormals** are flushed to zero on every thread of the team.
/// - **The host program** has its own settings back (the number of OpenMP threads, the handling of
///   denormals) when the last of a thread's engines has ended on the thread that made it.
/// - **Allocation** happens when a kernel is made, not when it runs.
class RONDO_TENSOR_API Engine {
 public:
  explicit Engine(int threads = 1,
                  std::pmr::memory_resource* memory = std::pmr::get_default_resource(),
                  ConvolutionAlgorithm convolutions = ConvolutionAlgorithm::direct);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine();

  [[nodiscard]] int threads() const noexcept;
  [[nodiscard]] std::pmr::memory_resource* memory() const noexcept;
  [[nodiscard]] ConvolutionAlgorithm convolutions() const noexcept;

  /// Where layers that are made from now on take what is theirs alone; null: memory(), as in the
  /// beginning. Buffers that all layers share come from memory() in any case. Layers that never are
  /// in use at the same time may be given the same memory, one after another; not those that share
  /// weights, whose packed copies lie where the first layer that reads them was made.
  void set_layer_memory(std::pmr::memory_resource* memory) noexcept;
  [[nodiscard]] std::pmr::memory_resource* layer_memory() const noexcept;

  class Impl;
  [[nodiscard]] Impl& impl() noexcept { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// The instruction set that our own kernels chose on this machine: "baseline", "avx2", "avx512",
/// "avx512_bf16".
[[nodiscard]] RONDO_TENSOR_API std::string instruction_set();

/// A text of all that decides which kernels layers get here: oneDNN's version and instruction set,
/// which ONEDNN_MAX_CPU_ISA narrows, and those of our own kernels. Ranks with the same one compute
/// the same bits with as many threads; times that were measured with one say nothing of another.
[[nodiscard]] RONDO_TENSOR_API std::string kernel_set();

/// oneDNN's version, as "2.6.3".
[[nodiscard]] RONDO_TENSOR_API std::string onednn_version();

}  // namespace rondo::tensor

#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <oneapi/dnnl/dnnl.hpp>

#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/tensor.hpp>

namespace rondo::tensor {

/// Makes `threads` the size of the calling thread's team, oneDNN's and ours, and flushes denormals
/// to zero on all of it. Cheap when nothing has changed.
void prepare_team(int threads);

/// Part `part` of `count` things in `parts` fixed cuts: [first, last).
struct Cut {
  std::int64_t first = 0;
  std::int64_t last = 0;
};
[[nodiscard]] constexpr Cut cut(std::int64_t count, int part, int parts) noexcept {
  return {count * part / parts, count * (part + 1) / parts};
}

/// Calls run(0) ... run(parts - 1), each on a thread of the team. Without OpenMP (our clang builds:
/// a second OpenMP runtime beside oneDNN's would be a second team) one after another, with the
/// same result.
template <typename Run>
void for_each_part(int parts, const Run& run) {
  if (parts == 1) return run(0);
#ifdef _OPENMP
#pragma omp parallel for num_threads(parts) schedule(static, 1)
#endif
  for (int part = 0; part < parts; ++part) run(part);
}

/// Neighbouring pixels of one image.
struct Pixels {
  std::int64_t first = 0;  ///< element of the whole tensor
  std::size_t count = 0;   ///< elements, a multiple of the channels
};

enum class Order { forward, backward };

/// Calls use(Pixels) for every image that a part of the pixels touches. The cuts depend on the
/// shape and on the number of parts alone, and so do the bits of sums. A second pass goes backward,
/// to begin with what the first pass left in the cache.
template <typename Use>
void for_each_image(const Shape& shape, int part, int parts, Order order, const Use& use) {
  const std::int64_t image_pixels = shape.h * shape.w;
  const Cut pixels = cut(shape.n * image_pixels, part, parts);
  if (pixels.first == pixels.last) return;
  const std::int64_t first_image = pixels.first / image_pixels;
  const std::int64_t last_image = (pixels.last - 1) / image_pixels;
  for (std::int64_t i = 0; i <= last_image - first_image; ++i) {
    const std::int64_t image = order == Order::forward ? first_image + i : last_image - i;
    const std::int64_t begin = std::max(pixels.first, image * image_pixels);
    const std::int64_t end = std::min(pixels.last, (image + 1) * image_pixels);
    use(Pixels{begin * shape.c, static_cast<std::size_t>((end - begin) * shape.c)});
  }
}

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

/// The calling thread's number, which no other thread ever has: a std::thread::id is used again.
[[nodiscard]] inline std::uint64_t number_of_this_thread() noexcept {
  static std::atomic<std::uint64_t> next{1};
  thread_local const std::uint64_t own = next.fetch_add(1, std::memory_order_relaxed);
  return own;
}

/// Parts that the kernels of one engine share, as they run one after another. The scratchpad and
/// the reorder buffer grow while kernels are made and stay where they are while kernels run.
class Engine::Impl {
 public:
  Impl(int threads, std::pmr::memory_resource* memory, ConvolutionAlgorithm convolutions)
      : threads_(threads),
        convolutions_(convolutions),
        memory_(memory),
        layer_memory_(memory),
        cpu_(dnnl::engine::kind::cpu, 0),
        stream_(cpu_) {}

  [[nodiscard]] int threads() const noexcept { return threads_; }
  [[nodiscard]] ConvolutionAlgorithm convolutions() const noexcept { return convolutions_; }
  [[nodiscard]] std::pmr::memory_resource* memory() const noexcept { return memory_; }
  [[nodiscard]] std::pmr::memory_resource* layer_memory() const noexcept { return layer_memory_; }
  void set_layer_memory(std::pmr::memory_resource* memory) noexcept {
    layer_memory_ = memory == nullptr ? memory_ : memory;
  }
  [[nodiscard]] const dnnl::engine& cpu() const noexcept { return cpu_; }
  [[nodiscard]] const dnnl::stream& stream() const noexcept { return stream_; }

  [[nodiscard]] bool made_on_this_thread() const noexcept {
    return number_of_this_thread() == maker_;
  }

  /// Before kernels are made or run on the calling thread.
  void enter() const { prepare_team(threads_); }

  void reserve_scratchpad(std::size_t bytes) { grow(scratchpad_, bytes); }
  [[nodiscard]] void* scratchpad() const noexcept { return scratchpad_.data(); }

  /// While one lives, kernels are taken without their test: a forecast of many layers must not run
  /// them all.
  class Forecast {
   public:
    explicit Forecast(const Impl& engine) noexcept : engine_(engine) { ++engine_.forecasts_; }
    Forecast(const Forecast&) = delete;
    Forecast& operator=(const Forecast&) = delete;
    ~Forecast() { --engine_.forecasts_; }

   private:
    const Impl& engine_;
  };
  [[nodiscard]] bool forecasts() const noexcept { return forecasts_ > 0; }

  /// Room for the weights of one layer between two layouts: mirrored ones while they are packed, a
  /// gradient from backward_weights() to unpack_gradients().
  void reserve_reorder_buffer(std::size_t bytes) { grow(reorder_buffer_, bytes); }
  [[nodiscard]] void* reorder_buffer() const noexcept { return reorder_buffer_.data(); }

 private:
  void grow(Buffer& buffer, std::size_t bytes) {
    if (bytes <= buffer.bytes()) return;
    // First freed: both at once would be more than was planned.
    const std::size_t before = buffer.bytes();
    buffer = Buffer();
    try {
      buffer = Buffer(memory_, bytes);
    } catch (...) {
      buffer = Buffer(memory_, before);  // layers that exist go on
      throw;
    }
  }

  std::uint64_t maker_ = number_of_this_thread();
  int threads_;
  ConvolutionAlgorithm convolutions_;
  std::pmr::memory_resource* memory_;
  std::pmr::memory_resource* layer_memory_;
  dnnl::engine cpu_;
  dnnl::stream stream_;
  Buffer scratchpad_;
  Buffer reorder_buffer_;
  mutable int forecasts_ = 0;
};

/// Throws std::invalid_argument unless `given` has the shape and type that are expected and, if it
/// has elements, memory. `call` and `argument` are for the message: "Convolution::forward", "x".
void require_shape(std::string_view call, std::string_view argument, const ConstAnyView& given,
                   const Shape& expected, DataType type = DataType::f32);

}  // namespace rondo::tensor

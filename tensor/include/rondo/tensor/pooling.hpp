#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <rondo/tensor/convolution.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/export.hpp>
#include <rondo/tensor/tensor.hpp>

namespace rondo::tensor {

enum class PoolingKind : std::uint8_t { max, average };

/// One pooling layer; average pooling does not count padding. A window of the whole image is
/// global average pooling.
struct PoolingSpec {
  Shape input = {};
  PoolingKind kind = PoolingKind::max;
  std::int64_t window_h = 2;
  std::int64_t window_w = 2;
  std::int64_t stride = 2;
  std::int64_t pad_top = 0;
  std::int64_t pad_bottom = 0;
  std::int64_t pad_left = 0;
  std::int64_t pad_right = 0;
  InputGradient input_gradient = InputGradient::wanted;
  DataType type = DataType::f32;  ///< of input, output and their gradients

  [[nodiscard]] Shape output() const noexcept {
    return {input.n, (input.h + pad_top + pad_bottom - window_h) / stride + 1,
            (input.w + pad_left + pad_right - window_w) / stride + 1, input.c};
  }
};

/// Pooling by oneDNN. forward() of max pooling remembers where each maximum came from, for the
/// backward() that follows it; not where no gradient is wanted, and backward() throws
/// std::invalid_argument there. Same contract as Convolution.
class RONDO_TENSOR_API Pooling {
 public:
  Pooling(Engine& engine, const PoolingSpec& spec);
  Pooling(Pooling&&) noexcept;
  Pooling& operator=(Pooling&&) noexcept;
  ~Pooling();

  [[nodiscard]] const PoolingSpec& spec() const noexcept;
  void forward(ConstAnyView x, AnyView y);
  void backward(ConstAnyView dy, AnyView dx);
  [[nodiscard]] std::string implementation() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rondo::tensor

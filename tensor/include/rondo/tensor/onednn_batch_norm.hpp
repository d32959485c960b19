#pragma once

#include <memory>
#include <span>
#include <string>

#include <rondo/tensor/batch_norm.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/export.hpp>
#include <rondo/tensor/view.hpp>

namespace rondo::tensor {

/// oneDNN's own batch normalisation, to measure and to check our BatchNorm against.
///
/// Training only. ReLU is fused when the spec's activation asks for it. oneDNN cannot fuse a
/// residual: the spec must have none. Allocates nothing after construction.
class RONDO_TENSOR_API OnednnBatchNorm {
 public:
  OnednnBatchNorm(Engine& engine, const BatchNormSpec& spec);
  OnednnBatchNorm(OnednnBatchNorm&&) noexcept;
  OnednnBatchNorm& operator=(OnednnBatchNorm&&) noexcept;
  ~OnednnBatchNorm();

  /// x and y are dense, of the spec's shape; remembers what backward() needs.
  void forward(View<const float> x, BatchNormParameters p, View<float> y);
  void backward(View<const float> x, BatchNormParameters p, View<const float> dy, View<float> dx,
                std::span<float> scale_gradient, std::span<float> shift_gradient);

  [[nodiscard]] std::string implementation() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rondo::tensor

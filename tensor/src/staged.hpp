#pragma once

#include <cstddef>
#include <string_view>

#include <rondo/tensor/shape.hpp>
#include <rondo/tensor/view.hpp>

#include "engine_impl.hpp"

namespace rondo::tensor {

/// Throws std::invalid_argument unless `given` has the shape `expected` and, if it has elements,
/// memory. `call` and `argument` are for the message: "Convolution::forward", "x".
void require_shape(std::string_view call, std::string_view argument, const View<const float>& given,
                   const Shape& expected);

/// oneDNN runs its fast kernels on dense memory only. These give the dense memory for a view: its
/// own, or a staging area of the engine. A single image is always dense.
[[nodiscard]] const float* dense_input(Engine::Impl& engine, const View<const float>& view,
                                       std::size_t slot);

/// Where a kernel may write; finish() copies what was staged into the view.
class DenseOutput {
 public:
  DenseOutput(Engine::Impl& engine, const View<float>& view, std::size_t slot);
  [[nodiscard]] float* data() const noexcept { return data_; }
  void finish();

 private:
  const Engine::Impl& engine_;
  View<float> view_;
  float* data_;
};

}  // namespace rondo::tensor

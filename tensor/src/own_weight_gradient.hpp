#pragma once

#include <cstddef>
#include <string>

#include <oneapi/dnnl/dnnl.hpp>

#include <rondo/tensor/convolution.hpp>

#include "engine_impl.hpp"

namespace rondo::tensor {

/// The weight gradient of a convolution of one group by loops of our own, in fp32. Its bits are the
/// same for any number of threads.
class OwnWeightGradient {
 public:
  OwnWeightGradient() = default;
  OwnWeightGradient(const OwnWeightGradient&) = delete;
  OwnWeightGradient& operator=(const OwnWeightGradient&) = delete;
  virtual ~OwnWeightGradient() = default;

  /// Bytes that run() uses of the engine's scratchpad.
  [[nodiscard]] virtual std::size_t scratchpad_bytes() const noexcept = 0;
  [[nodiscard]] virtual std::string name() const = 0;
  /// The layout of the result.
  [[nodiscard]] virtual dnnl::memory::format_tag layout() const noexcept = 0;

  /// `x` and `dy` are dense, as in the spec. `bias_gradient` is null where the spec has no bias,
  /// which most of these kernels demand.
  virtual void run(const Engine::Impl& engine, const void* x, const void* dy, float* into,
                   float* bias_gradient) const = 0;
};

}  // namespace rondo::tensor

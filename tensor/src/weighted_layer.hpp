#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include <oneapi/dnnl/dnnl.hpp>

#include <rondo/tensor/kernel_memory.hpp>
#include <rondo/tensor/shape.hpp>
#include <rondo/tensor/view.hpp>

#include "onednn_kernel.hpp"
#include "packed_weights.hpp"

namespace rondo::tensor {

/// The three kernels of a layer with weights, and what they agree on. For an empty batch they
/// are all empty: oneDNN is never asked.
struct LayerKernels {
  dnnl::primitive_desc_base forward = {};
  dnnl::primitive_desc_base backward_data = {};  ///< empty when no input gradient is wanted
  /// mirrored: backward_data is the forward kernel of the mirrored convolution.
  WeightsKind backward_data_reads = WeightsKind::own;
  dnnl::primitive_desc_base backward_weights = {};  ///< empty when theirs is not
};

/// What a layer with these kernels takes; its weights are `plain` in the flat parameter array.
[[nodiscard]] KernelMemory memory_of(const LayerKernels& kernels, const dnnl::memory::desc& plain);

/// What convolutions and fully connected layers have in common: packed weights, gradients in the
/// kernel's layout (in the engine's reorder buffer), staging of strided views, and checks of all
/// arguments.
class WeightedLayer {
 public:
  struct Extents {
    std::string name = {};  ///< for messages
    Shape input = {};
    Shape output = {};
    bool bias = false;
    bool input_gradient = true;
    bool weight_gradient = true;
  };

  WeightedLayer(Engine& engine, Extents extents, const LayerKernels& kernels,
                std::shared_ptr<PackedWeights> weights);

  [[nodiscard]] Engine& engine() const noexcept { return engine_; }
  [[nodiscard]] const std::shared_ptr<PackedWeights>& weights() const noexcept { return weights_; }

  void pack_weights(std::span<const float> plain);
  void forward(View<const float> x, std::span<const float> bias, View<float> y);
  void backward_data(View<const float> dy, View<float> dx);
  void backward_weights(View<const float> x, View<const float> dy, std::span<float> bias_gradient);
  void unpack_gradients(std::span<float> plain);
  [[nodiscard]] const std::string& implementation() const noexcept { return implementation_; }

 private:
  void make_forward(const dnnl::primitive_desc_base& desc);
  void make_backward_data(const dnnl::primitive_desc_base& desc, WeightsKind reads);
  void make_backward_weights(const dnnl::primitive_desc_base& desc);
  void require_bias(const char* call, std::size_t size) const;
  void require_weights(const char* call, std::size_t size) const;
  void require_weight_gradient(const char* call) const;

  Engine& engine_;
  Engine::Impl& shared_;
  Extents extents_;
  std::shared_ptr<PackedWeights> weights_;
  std::string implementation_ = "none (no images)";
  OnednnKernel forward_;
  OnednnKernel backward_data_;
  OnednnKernel backward_weights_;
  OnednnKernel unpack_;
};

}  // namespace rondo::tensor

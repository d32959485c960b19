#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

#include <rondo/tensor/kernel_memory.hpp>
#include <rondo/tensor/tensor.hpp>

#include "onednn_kernel.hpp"
#include "own_weight_gradient.hpp"
#include "reorder.hpp"
#include "winograd.hpp"

namespace rondo::tensor {

/// Which weights a kernel reads: the layer's own, or those of the mirrored convolution, with
/// filters and channels exchanged and every filter turned by half a turn. Run over dy, that one
/// gives dx.
enum class WeightsKind { own, mirrored };

/// The weights of one layer in every layout that one of its kernels reads: forward, backward,
/// and the same layer for another number of images. Kernels share a layout where they can. Mirrored
/// weights are made in the engine's reorder buffer.
class PackedWeights {
 public:
  /// `plain` is the layout in the flat parameter array: [F,C,KH,KW], or [F,C].
  PackedWeights(Engine::Impl& engine, const dnnl::memory::desc& plain);

  [[nodiscard]] const dnnl::memory::desc& plain() const noexcept { return plain_; }

  /// Where the weights lie in `layout` after the next pack(). The address is stable.
  [[nodiscard]] void* place_of(const dnnl::memory::desc& layout,
                               WeightsKind kind = WeightsKind::own);

  /// From the plain layout into all others.
  void pack(const float* weights);

  /// Whether every layout that was asked for has been packed since then.
  [[nodiscard]] bool is_packed() const noexcept { return packed_; }

 private:
  struct Copy {
    WeightsKind kind;
    dnnl::memory::desc layout;
    Buffer memory;
    Reorder reorder;
  };

  void mirror(const float* weights) const;

  Engine::Impl& engine_;
  dnnl::memory::desc plain_;
  dnnl::memory::dims extents_;  ///< of plain_, which would make a new vector each time
  std::deque<Copy> copies_;
  bool packed_ = false;
};

/// The three kernels of a layer with weights, and what they agree on. For an empty batch they
/// are all empty: oneDNN is never asked.
struct LayerKernels {
  dnnl::primitive_desc_base forward = {};
  dnnl::primitive_desc_base backward_data = {};  ///< empty when no input gradient is wanted
  /// mirrored: backward_data is the forward kernel of the mirrored convolution.
  WeightsKind backward_data_reads = WeightsKind::own;
  dnnl::primitive_desc_base backward_weights = {};  ///< empty when theirs is not
  /// These run in place of forward, backward_data and backward_weights, if they are there.
  std::shared_ptr<const WinogradConvolution> own_forward = {};
  std::shared_ptr<const WinogradConvolution> own_backward_data = {};
  std::shared_ptr<const OwnWeightGradient> own_backward_weights = {};
};

/// The memory of a layer with these kernels; its weights are `plain` in the flat parameter array.
[[nodiscard]] KernelMemory memory_of(const LayerKernels& kernels, const dnnl::memory::desc& plain);

/// The common part of convolutions and fully connected layers: packed weights, gradients in the
/// kernel's layout (in the engine's reorder buffer), and checks of all arguments.
class WeightedLayer {
 public:
  struct Extents {
    std::string name = {};  ///< for messages
    Shape input = {};
    Shape output = {};
    DataType type = DataType::f32;
    DataType output_type = DataType::f32;
    DataType input_gradient_type = DataType::f32;
    bool bias = false;
    bool input_gradient = true;
    bool weight_gradient = true;
  };

  WeightedLayer(Engine& engine, Extents extents, const LayerKernels& kernels,
                std::shared_ptr<PackedWeights> weights);

  [[nodiscard]] Engine& engine() const noexcept { return engine_; }
  [[nodiscard]] const std::shared_ptr<PackedWeights>& weights() const noexcept { return weights_; }

  void pack_weights(std::span<const float> plain);
  void forward(ConstAnyView x, std::span<const float> bias, AnyView y);
  void backward_data(ConstAnyView dy, AnyView dx);
  void backward_weights(ConstAnyView x, ConstAnyView dy, std::span<float> bias_gradient);
  void unpack_gradients(std::span<float> plain);
  [[nodiscard]] const std::string& implementation() const noexcept { return implementation_; }

 private:
  struct OwnConvolution {
    std::shared_ptr<const WinogradConvolution> kernel = {};
    const float* weights = nullptr;  ///< in weights_

    void run(const Engine::Impl& engine, const void* x, std::span<const float> bias,
             void* y) const {
      kernel->run(engine, static_cast<const float*>(x), weights,
                  bias.empty() ? nullptr : bias.data(), static_cast<float*>(y));
    }
  };

  [[nodiscard]] OwnConvolution own_convolution(std::shared_ptr<const WinogradConvolution> kernel,
                                               const char* pass);
  void make_forward(const dnnl::primitive_desc_base& desc);
  void make_backward_data(const dnnl::primitive_desc_base& desc, WeightsKind reads);
  void make_backward_weights(const LayerKernels& kernels);
  void make_backward_weights(std::shared_ptr<const OwnWeightGradient> own);
  void require_bias(const char* call, std::size_t size) const;
  void require_weights(const char* call, std::size_t size) const;
  void require_weight_gradient(const char* call) const;
  void require_packed(const char* call) const;

  Engine& engine_;
  Engine::Impl& shared_;
  Extents extents_;
  std::shared_ptr<PackedWeights> weights_;
  std::string implementation_ = "none (no images)";
  OnednnKernel forward_;
  OnednnKernel backward_data_;
  OnednnKernel backward_weights_;
  OwnConvolution own_forward_;
  OwnConvolution own_backward_data_;
  std::shared_ptr<const OwnWeightGradient> own_backward_weights_;
  Reorder unpack_;
};

/// The differences between the kinds of layers with weights, which have a spec each.
template <typename Spec>
struct WeightedKind {
  const char* name;
  std::string (*describe)(const Spec& spec);
  void (*require_possible)(const Spec& spec);  ///< or std::invalid_argument
  dnnl::memory::desc (*plain_weights)(const Spec& spec);
  LayerKernels (*choose_kernels)(const Spec& spec, const Engine::Impl& on);
};

/// ask(), which calls oneDNN; what oneDNN throws gets the layer's name.
template <typename Spec, typename Ask>
auto ask_onednn(Engine& engine, const WeightedKind<Spec>& kind, const Spec& spec, const Ask& ask) {
  engine.impl().enter();
  try {
    return ask();
  } catch (const dnnl::error& error) {
    throw std::runtime_error(kind.describe(spec) + ": oneDNN: " + error.what());
  }
}

/// Asks oneDNN which kernels it would choose, without making or testing one.
template <typename Spec>
[[nodiscard]] KernelMemory memory_of_layer(Engine& engine, const WeightedKind<Spec>& kind,
                                           const Spec& spec) {
  kind.require_possible(spec);
  const Engine::Impl::Forecast forecast(engine.impl());
  return ask_onednn(engine, kind, spec, [&] {
    return memory_of(kind.choose_kernels(spec, engine.impl()), kind.plain_weights(spec));
  });
}

/// A layer without `weights` makes its own; another batch size of the same layer gets them from it.
template <typename Impl, typename Spec>
[[nodiscard]] std::unique_ptr<Impl> make_layer(Engine& engine, const WeightedKind<Spec>& kind,
                                               const Spec& spec,
                                               std::shared_ptr<PackedWeights> weights) {
  kind.require_possible(spec);
  require_computable(spec.type);
  return ask_onednn(engine, kind, spec, [&] {
    if (weights == nullptr) {
      weights = std::make_shared<PackedWeights>(engine.impl(), kind.plain_weights(spec));
    }
    return std::make_unique<Impl>(engine, spec, std::move(weights));
  });
}

/// The part of a layer that runs the kernels of `spec`.
template <typename Spec>
[[nodiscard]] WeightedLayer run_kernels(Engine& engine, const WeightedKind<Spec>& kind,
                                        const Spec& spec, DataType output_type,
                                        std::shared_ptr<PackedWeights> weights) {
  return {engine,
          {.name = kind.name,
           .input = spec.input,
           .output = spec.output(),
           .type = spec.type,
           .output_type = output_type,
           .input_gradient_type = spec.input_gradient_type(),
           .bias = spec.bias,
           .input_gradient = spec.input_gradient == InputGradient::wanted,
           .weight_gradient = spec.weight_gradient == WeightGradient::wanted},
          kind.choose_kernels(spec, engine.impl()),
          std::move(weights)};
}

}  // namespace rondo::tensor

#include "layers/layer_kernel.hpp"

#include "layers/batch_norm_kernel.hpp"
#include "layers/pooling_kernel.hpp"
#include "layers/weighted_kernel.hpp"
#include "model/specs.hpp"

namespace rondo::train {
namespace {

class Maker {
 public:
  Maker(tensor::Engine& engine, bool input_gradient, KernelPurpose purpose)
      : engine_(engine),
        input_gradient_(input_gradient && purpose == KernelPurpose::training
                            ? tensor::InputGradient::wanted
                            : tensor::InputGradient::unused),
        trains_(purpose == KernelPurpose::training) {}

  std::unique_ptr<LayerKernel> operator()(const tensor::ConvolutionSpec& spec) const {
    return weighted<tensor::Convolution>(spec);
  }
  std::unique_ptr<LayerKernel> operator()(const tensor::FullyConnectedSpec& spec) const {
    return weighted<tensor::FullyConnected>(spec);
  }
  std::unique_ptr<LayerKernel> operator()(const tensor::BatchNormSpec& spec) const {
    return std::make_unique<BatchNormKernel>(engine_, spec);
  }
  std::unique_ptr<LayerKernel> operator()(tensor::PoolingSpec spec) const {
    if (!trains_) spec.input_gradient = tensor::InputGradient::unused;
    return std::make_unique<PoolingKernel>(engine_, spec);
  }

 private:
  template <typename Kernel, typename Spec>
  std::unique_ptr<LayerKernel> weighted(Spec spec) const {
    spec.input_gradient = input_gradient_;
    if (!trains_) spec.weight_gradient = tensor::WeightGradient::unused;
    return std::make_unique<WeightedKernel<Kernel>>(engine_, Kernel(engine_, spec));
  }

  tensor::Engine& engine_;
  tensor::InputGradient input_gradient_;
  bool trains_;
};

}  // namespace

void LayerKernel::load(std::span<const float> /*parameters*/) {}

void LayerKernel::backward_input(const BackwardOperands& /*operands*/) {}

std::string LayerKernel::implementation() const { return {}; }

std::unique_ptr<LayerKernel> make_layer_kernel(tensor::Engine& engine, const LayerKind& layer,
                                               tensor::Shape input, bool input_gradient,
                                               KernelPurpose purpose) {
  const Maker make(engine, input_gradient, purpose);
  return std::visit([&](const auto& kind) { return make(spec_of(kind, input)); }, layer);
}

}  // namespace rondo::train

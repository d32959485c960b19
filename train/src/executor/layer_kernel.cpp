#include "executor/layer_kernel.hpp"

#include <stdexcept>

#include "executor/batch_norm_kernel.hpp"
#include "executor/pooling_kernel.hpp"
#include "executor/weighted_kernel.hpp"
#include "model/specs.hpp"

namespace rondo::train {
namespace {

class Maker {
 public:
  Maker(tensor::Engine& engine, bool input_gradient)
      : engine_(engine), input_gradient_(input_gradient) {}

  std::unique_ptr<LayerKernel> operator()(const tensor::ConvolutionSpec& spec) const {
    return weighted<tensor::Convolution>(spec);
  }
  std::unique_ptr<LayerKernel> operator()(const tensor::FullyConnectedSpec& spec) const {
    return weighted<tensor::FullyConnected>(spec);
  }
  std::unique_ptr<LayerKernel> operator()(const tensor::BatchNormSpec& spec) const {
    return std::make_unique<BatchNormKernel>(engine_, spec);
  }
  std::unique_ptr<LayerKernel> operator()(const tensor::PoolingSpec& spec) const {
    return std::make_unique<PoolingKernel>(engine_, spec);
  }

 private:
  template <typename Kernel, typename Spec>
  std::unique_ptr<LayerKernel> weighted(Spec spec) const {
    if (!input_gradient_) spec.input_gradient = tensor::InputGradient::unused;
    return std::make_unique<WeightedKernel<Kernel>>(engine_, Kernel(engine_, spec));
  }

  tensor::Engine& engine_;
  bool input_gradient_;
};

}  // namespace

std::unique_ptr<LayerKernel> LayerKernel::for_images(std::int64_t images) {
  throw std::logic_error("LayerKernel: not to be had for " + std::to_string(images) + " images");
}

void LayerKernel::load(std::span<const float> /*parameters*/) {}

void LayerKernel::backward_input(const BackwardOperands& /*operands*/) {}

std::string LayerKernel::implementation() const { return {}; }

std::unique_ptr<LayerKernel> make_layer_kernel(tensor::Engine& engine, const LayerKind& layer,
                                               tensor::Shape input, bool input_gradient) {
  const Maker make(engine, input_gradient);
  return std::visit([&](const auto& kind) { return make(spec_of(kind, input)); }, layer);
}

}  // namespace rondo::train

#include "executor/layer_kernel.hpp"

#include <stdexcept>

#include "executor/batch_norm_kernel.hpp"
#include "executor/pooling_kernel.hpp"
#include "executor/weighted_kernel.hpp"
#include "model/specs.hpp"

namespace rondo::train {
namespace {

// Nobody needs the gradient of the model's input.
template <typename Spec>
Spec without_unused_gradient(Spec spec, const LayerSpec& layer) {
  constexpr ValueId model_input = 0;
  if (layer.inputs[0] == model_input) spec.input_gradient = tensor::InputGradient::unused;
  return spec;
}

class Maker {
 public:
  Maker(tensor::Engine& engine, const LayerSpec& layer) : engine_(engine), layer_(layer) {}

  std::unique_ptr<LayerKernel> operator()(const tensor::ConvolutionSpec& spec) const {
    return std::make_unique<WeightedKernel<tensor::Convolution>>(
        engine_, tensor::Convolution(engine_, without_unused_gradient(spec, layer_)));
  }
  std::unique_ptr<LayerKernel> operator()(const tensor::FullyConnectedSpec& spec) const {
    return std::make_unique<WeightedKernel<tensor::FullyConnected>>(
        engine_, tensor::FullyConnected(engine_, without_unused_gradient(spec, layer_)));
  }
  std::unique_ptr<LayerKernel> operator()(const tensor::BatchNormSpec& spec) const {
    return std::make_unique<BatchNormKernel>(engine_, spec);
  }
  std::unique_ptr<LayerKernel> operator()(const tensor::PoolingSpec& spec) const {
    return std::make_unique<PoolingKernel>(engine_, spec);
  }

 private:
  tensor::Engine& engine_;
  const LayerSpec& layer_;
};

}  // namespace

std::unique_ptr<LayerKernel> LayerKernel::for_images(std::int64_t images) {
  throw std::logic_error("LayerKernel: not to be had for " + std::to_string(images) + " images");
}

void LayerKernel::load(std::span<const float> /*parameters*/) {}

void LayerKernel::backward_input(const BackwardOperands& /*operands*/) {}

std::string LayerKernel::implementation() const { return {}; }

std::unique_ptr<LayerKernel> make_layer_kernel(tensor::Engine& engine, const LayerSpec& layer,
                                               tensor::Shape input) {
  const Maker make(engine, layer);
  return std::visit([&](const auto& kind) { return make(spec_of(kind, input)); }, layer.kind);
}

}  // namespace rondo::train

// A kind of layer and a model of one's own, trained without a change to the library:
//
//   rondo run -n 2 -- own_layer
//
// Leaky ReLU: y = x where x > 0, else a tenth of it.

#include <cstdio>
#include <memory>
#include <string>

#include <rondo/tensor/team.hpp>
#include <rondo/train/layer_type.hpp>
#include <rondo/train/trainer.hpp>
#include <rondo/transport/world.hpp>

namespace own {

using namespace rondo;
using namespace rondo::train;

struct LeakyLayer {
  float slope = 0.1F;
};

class LeakyKernel final : public OneForwardKernel {
 public:
  LeakyKernel(tensor::Engine& engine, float slope) : engine_(engine), slope_(slope) {}
  void backward_parameters(const BackwardOperands& /*operands*/) override {}
  void backward_input(const BackwardOperands& b) override {
    if (b.dx.data == nullptr) return;
    scale(b.x.as<float>().data, b.dy.as<float>().data, b.dx.as<float>().data, b.dy.shape.size());
  }

 private:
  void forward(const ForwardOperands& f) override {
    const float* x = f.x.as<float>().data;
    scale(x, x, f.y.as<float>().data, f.y.shape.size());
  }
  void scale(const float* sign, const float* from, float* into, std::int64_t count) const {
    tensor::for_each_share(engine_, count, [&](std::int64_t first, std::int64_t last) {
      for (auto i = first; i < last; ++i) into[i] = sign[i] > 0.0F ? from[i] : slope_ * from[i];
    });
  }

  tensor::Engine& engine_;
  float slope_;
};

class Leaky final : public LayerType {
 public:
  explicit Leaky(float slope) : slope_(slope) {}
  std::string text() const override { return "leaky " + std::to_string(slope_); }
  tensor::Shape output(const tensor::Shape& input) const override { return input; }
  std::unique_ptr<LayerKernel> kernel(tensor::Engine& engine, const tensor::Shape& /*input*/,
                                      bool /*gradient*/, KernelPurpose /*purpose*/) const override {
    return std::make_unique<LeakyKernel>(engine, slope_);
  }

 private:
  float slope_;
};

std::shared_ptr<const LayerType> make_layer_type(const LeakyLayer& layer) {
  return std::make_shared<Leaky>(layer.slope);
}

Model make_model() {
  ModelBuilder builder("leaky", {1, 28, 28, 1}, 10);
  ValueId x = builder.add("conv", ConvolutionLayer{.filters = 8, .stride = 2}, ModelBuilder::input);
  x = builder.add("leaky", LeakyLayer{}, x);
  builder.add("fc", FullyConnectedLayer{.outputs = 10}, x);
  return builder.finish();
}

}  // namespace own

int main() {
  auto world = rondo::transport::World::attach();
  const auto experiment = rondo::train::parse_experiment(
      "[data]\nname = 'synthetic'\ntraining = 2000\n[model]\nname = 'lenet5'\n[train]\n"
      "epochs = 2\n[optimizer]\nlearning_rate = 0.05\n",
      "own_layer");  // [model] does not count: the program has its own
  const rondo::train::Model model = own::make_model();
  const auto metrics = rondo::train::train(world, experiment, {.model = &model});
  if (world.rank() == 0) std::printf("accuracy %.1f %%\n", metrics.accuracy);
  return metrics.accuracy > 50.0 ? 0 : 1;
}

#include "benchmark/layer_benchmark.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include <rondo/tensor/tensor.hpp>

#include "benchmark/median_time.hpp"
#include "model/specs.hpp"

namespace rondo::train {
namespace {

constexpr std::chrono::milliseconds kernel_budget{15};  // for each kernel

tensor::Tensor make_wave(const tensor::Engine& engine, tensor::Shape shape) {
  tensor::Tensor wave(shape, engine.memory());
  float angle = 0.0F;
  for (float& value : wave.span()) value = std::sin(angle += 0.7F);
  return wave;
}

// The name that follows "direction " in "forward A, data B, weights C".
std::string name_after(const std::string& implementation, std::string_view direction) {
  const std::size_t found = implementation.find(direction);
  if (found == std::string::npos) return "onednn";
  const std::size_t begin = found + direction.size() + 1;
  return implementation.substr(begin, implementation.find(',', begin) - begin);
}

double operations(const tensor::ConvolutionSpec& spec) {
  const tensor::Shape y = spec.output();
  return 2.0 * static_cast<double>(y.n * y.h * y.w) * static_cast<double>(spec.weights());
}

double operations(const tensor::FullyConnectedSpec& spec) {
  return 2.0 * static_cast<double>(spec.input.n) * static_cast<double>(spec.weights());
}

double gflops(double operations, double microseconds) { return operations / microseconds / 1e3; }

// Times the layers of one model, one after another.
class LayerTimer {
 public:
  LayerTimer(tensor::Engine& engine, const LayerSpec& layer) : engine_(engine), layer_(layer) {}

  void time(const tensor::ConvolutionSpec& spec) { time_weighted<tensor::Convolution>(spec); }
  void time(const tensor::FullyConnectedSpec& spec) { time_weighted<tensor::FullyConnected>(spec); }
  void time(const tensor::PoolingSpec& spec);
  void time(const tensor::BatchNormSpec& spec);

  std::vector<KernelTime> take() { return std::move(times_); }

 private:
  template <typename Kernel, typename Spec>
  void time_weighted(Spec spec);

  template <typename Run>
  double timed(const Run& run) const {
    return median_microseconds(kernel_budget, run);
  }
  void add(std::string direction, std::string implementation, double microseconds,
           double work = 0.0) {
    times_.push_back({layer_.name, std::move(direction), std::move(implementation), microseconds,
                      gflops(work, microseconds)});
  }
  [[nodiscard]] bool first() const { return layer_.inputs[0] == 0; }

  tensor::Engine& engine_;
  const LayerSpec& layer_;
  std::vector<KernelTime> times_;
};

template <typename Kernel, typename Spec>
void LayerTimer::time_weighted(Spec spec) {
  if (first()) spec.input_gradient = tensor::InputGradient::unused;
  Kernel kernel(engine_, spec);
  const std::string names = kernel.implementation();
  const auto x = make_wave(engine_, spec.input);
  const auto dy = make_wave(engine_, spec.output());
  tensor::Tensor y(spec.output(), engine_.memory());
  tensor::Tensor dx(spec.input, engine_.memory());
  const auto weights = make_wave(engine_, {1, 1, 1, spec.weights()});
  const auto bias = make_wave(engine_, {1, 1, 1, spec.bias ? spec.output().c : 0});
  auto bias_gradient = make_wave(engine_, bias.shape());
  const double work = operations(spec);
  kernel.pack_weights(weights.span());
  const double forward = timed([&] { kernel.forward(x.view(), bias.span(), y.view()); });
  add("forward", name_after(names, "forward"), forward, work);
  const double in_weights =
      timed([&] { kernel.backward_weights(x.view(), dy.view(), bias_gradient.span()); });
  add("backward_weights", name_after(names, "weights"), in_weights, work);
  if (first()) return;
  const double in_data = timed([&] { kernel.backward_data(dy.view(), dx.view()); });
  add("backward_data", name_after(names, "data"), in_data, work);
}

void LayerTimer::time(const tensor::PoolingSpec& spec) {
  tensor::Pooling kernel(engine_, spec);
  const auto x = make_wave(engine_, spec.input);
  const auto dy = make_wave(engine_, spec.output());
  tensor::Tensor y(spec.output(), engine_.memory());
  tensor::Tensor dx(spec.input, engine_.memory());
  const std::string names = kernel.implementation();
  add("forward", name_after(names, "forward"), timed([&] { kernel.forward(x.view(), y.view()); }));
  add("backward_data", name_after(names, "data"),
      timed([&] { kernel.backward(dy.view(), dx.view()); }));
}

void LayerTimer::time(const tensor::BatchNormSpec& spec) {
  tensor::BatchNorm kernel(engine_, spec);
  const auto x = make_wave(engine_, spec.input);
  const auto residual = make_wave(engine_, spec.residual ? spec.input : tensor::Shape{});
  tensor::Tensor y(spec.input, engine_.memory());
  auto dy = make_wave(engine_, spec.input);
  tensor::Tensor dx(spec.input, engine_.memory());
  std::vector<tensor::Tensor> channels;
  for (int i = 0; i < 6; ++i) channels.push_back(make_wave(engine_, {1, 1, 1, spec.input.c}));
  const tensor::BatchNormParameters learned{channels[0].span(), channels[1].span()};
  add("forward", "rondo", timed([&] {
        kernel.forward_training(x.view(), residual.view(), learned, channels[2].span(),
                                channels[3].span(), y.view());
      }));
  add("backward", "rondo", timed([&] {
        kernel.backward(x.view(), y.view(), learned, dy.view(),
                        spec.residual ? dx.view() : dy.view(), channels[4].span(),
                        channels[5].span());
      }));
}

}  // namespace

std::vector<KernelTime> measure_layer(tensor::Engine& engine, const LayerSpec& layer,
                                      tensor::Shape input) {
  LayerTimer timer(engine, layer);
  std::visit([&](const auto& kind) { timer.time(spec_of(kind, input)); }, layer.kind);
  return timer.take();
}

}  // namespace rondo::train

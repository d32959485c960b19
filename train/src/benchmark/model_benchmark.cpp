// Times of a model's training step and of its layers by themselves, for `rondo bench model` and for
// the planner. Medians of several runs, after two that are not counted.
//
// A kernel alone is timed on data that is in the caches, or after a flush of them: in a step most
// kernels lie between the two, because other layers have run since their weights and inputs were
// last used. A whole step is timed with the executor itself, without other ranks.

#include "benchmark/model_benchmark.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <rondo/sync/optimizer.hpp>
#include <rondo/tensor/elementwise.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/tensor.hpp>
#include <rondo/train/executor.hpp>
#include <rondo/train/model_benchmark.hpp>

#include "layers/layer_type.hpp"
#include "schemes/make_scheme.hpp"

namespace rondo::train {
namespace {

constexpr std::chrono::milliseconds kernel_budget{15};  // for each kernel

// Values that are neither constant nor denormal, the same in every run, without a generator of
// random numbers.
tensor::Tensor make_wave(const tensor::Engine& engine, tensor::Shape shape) {
  tensor::Tensor wave(shape, engine.memory());
  float angle = 0.0F;
  for (float& value : wave.span()) value = std::sin(angle += 0.7F);
  return wave;
}

// The same as `type`.
tensor::AnyTensor make_wave(tensor::Engine& engine, tensor::Shape shape, tensor::DataType type) {
  tensor::AnyTensor wave(shape, type, engine.memory());
  tensor::convert(engine, make_wave(engine, shape).view(), wave.view());
  return wave;
}

// The name that follows "direction " in "forward A, data B, weights C".
std::string name_after(const std::string& implementation, std::string_view direction) {
  const std::size_t found = implementation.find(direction);
  if (found == std::string::npos) return "onednn";
  const std::size_t begin = found + direction.size() + 1;
  return implementation.substr(begin, implementation.find(',', begin) - begin);
}

double gflops(double operations, double microseconds) { return operations / microseconds / 1e3; }

// Times the layers of one model, one after another.
class LayerTimer {
 public:
  LayerTimer(tensor::Engine& engine, const LayerSpec& layer, const std::function<void()>& before)
      : engine_(engine), layer_(layer), before_(before) {}

  void time(std::monostate /*spec*/) {}  // a layer without a kernel of the tensor library
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
    return median_microseconds(kernel_budget, run, before_);
  }
  void add(std::string direction, std::string implementation, double microseconds,
           double work = 0.0) {
    times_.push_back({layer_.name, std::move(direction), std::move(implementation), microseconds,
                      gflops(work, microseconds)});
  }
  [[nodiscard]] bool first() const { return layer_.inputs[0] == 0; }

  tensor::Engine& engine_;
  const LayerSpec& layer_;
  const std::function<void()>& before_;
  std::vector<KernelTime> times_;
};

// A convolution or a fully connected layer, in its three directions. Each multiplies and adds every
// weight once per position of the output, so all three count the same work.
template <typename Kernel, typename Spec>
void LayerTimer::time_weighted(Spec spec) {
  // The first layer's input is the batch, of which nobody wants the gradient.
  if (first()) spec.input_gradient = tensor::InputGradient::unused;
  Kernel kernel(engine_, spec);
  const std::string names = kernel.implementation();
  const auto x = make_wave(engine_, spec.input, spec.type);
  const auto dy = make_wave(engine_, spec.output(), spec.type);
  tensor::AnyTensor y(spec.output(), spec.type, engine_.memory());
  tensor::AnyTensor dx(spec.input, spec.type, engine_.memory());
  const auto weights = make_wave(engine_, {1, 1, 1, spec.weights()});
  const auto bias = make_wave(engine_, {1, 1, 1, spec.bias ? spec.output().c : 0});
  auto bias_gradient = make_wave(engine_, bias.shape());
  const double work = layer_.kind->flops(spec.input);
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

// Without a figure of work: pooling is as fast as memory, as batch norm is.
void LayerTimer::time(const tensor::PoolingSpec& spec) {
  tensor::Pooling kernel(engine_, spec);
  const auto x = make_wave(engine_, spec.input, spec.type);
  const auto dy = make_wave(engine_, spec.output(), spec.type);
  tensor::AnyTensor y(spec.output(), spec.type, engine_.memory());
  tensor::AnyTensor dx(spec.input, spec.type, engine_.memory());
  const std::string names = kernel.implementation();
  add("forward", name_after(names, "forward"), timed([&] { kernel.forward(x.view(), y.view()); }));
  add("backward_data", name_after(names, "data"),
      timed([&] { kernel.backward(dy.view(), dx.view()); }));
}

void LayerTimer::time(const tensor::BatchNormSpec& spec) {
  tensor::BatchNorm kernel(engine_, spec);
  const auto x = make_wave(engine_, spec.input, spec.type);
  const auto residual = make_wave(engine_, spec.residual ? spec.input : tensor::Shape{}, spec.type);
  tensor::AnyTensor y(spec.input, spec.type, engine_.memory());
  auto dy = make_wave(engine_, spec.input, spec.type);
  tensor::AnyTensor dx(spec.input, spec.type, engine_.memory());
  std::vector<tensor::Tensor> channels;
  for (int i = 0; i < 6; ++i) channels.push_back(make_wave(engine_, {1, 1, 1, spec.input.c}));
  const tensor::BatchNormParameters learned{channels[0].span(), channels[1].span()};
  add("forward", "rondo", timed([&] {
        kernel.forward_training(x.view(), residual.view(), learned, channels[2].span(),
                                channels[3].span(), y.view());
      }));
  add("backward", "rondo", timed([&] {
        // As the executor runs it: dx over dy, but where dy is wanted for a residual.
        kernel.backward(x.view(), y.view(), learned, dy.view(),
                        spec.residual ? dx.view() : dy.view(), channels[4].span(),
                        channels[5].span());
      }));
}

}  // namespace

std::vector<KernelTime> measure_layer(tensor::Engine& engine, const LayerSpec& layer,
                                      tensor::Shape input, tensor::DataType type,
                                      const std::function<void()>& before) {
  LayerTimer timer(engine, layer, before);
  const auto time = [&](auto spec) {
    if constexpr (requires { spec.type; }) spec.type = type;
    timer.time(spec);
  };
  // The kind of layer says which kernel of the tensor library it runs; one without any is not
  // timed.
  std::visit(time, layer.kind->spec(input));
  return timer.take();
}

namespace {

// The loss and the update are no layers, but they are a part of every step.
constexpr std::chrono::milliseconds optimizer_budget{15};

KernelTime measure_loss(tensor::Engine& engine, tensor::Shape shape,
                        const std::function<void()>& before) {
  const tensor::Tensor logits(shape, engine.memory());
  tensor::Tensor gradient(shape, engine.memory());
  const std::vector<std::int32_t> labels(static_cast<std::size_t>(shape.n), 0);
  const auto run = [&] {
    (void)tensor::softmax_cross_entropy(engine, logits.view(), labels, 0.0F, gradient.view());
  };
  const double time = median_microseconds(optimizer_budget, run, before);
  return {"loss", "forward", "rondo", time, 0.0};
}

KernelTime measure_update(const ParameterLayout& layout, const UpdateBenchmark& update,
                          const std::function<void()>& before) {
  const auto optimizer = make_optimizer(update.optimizer, layout, update.team);
  return {name_of(update.optimizer.name), "update", "rondo",
          update_microseconds(*optimizer, before), 0.0};
}

// Writing to every cache line of more memory than a core's share of the caches evicts what a kernel
// has left in them.
std::function<void()> cache_flush() {
  constexpr std::size_t bytes = std::size_t{64} << 20;
  constexpr std::size_t line = 64;
  auto memory = std::make_shared<std::vector<unsigned char>>(bytes);
  return [memory] {
    for (std::size_t at = 0; at < bytes; at += line) ++(*memory)[at];
  };
}

}  // namespace

double update_microseconds(sync::Optimizer& optimizer, const std::function<void()>& before) {
  std::vector<float> parameters(optimizer.size(), 1.0F);
  const std::vector<float> gradients(optimizer.size(), 1.0F);
  sync::Update update{.learning_rate = 1e-6};
  const auto run = [&] {
    optimizer.update(0, parameters, gradients, update);
    ++update.index;
  };
  return median_microseconds(optimizer_budget, run, before);
}

PrimitiveTimes measure_primitives(const Model& model, std::int64_t batch, int threads,
                                  tensor::DataType precision, KernelCaches caches,
                                  const UpdateBenchmark& update) {
  const std::function<void()> before =
      caches == KernelCaches::cold ? cache_flush() : std::function<void()>([] {});
  tensor::Engine engine(threads, std::pmr::get_default_resource(), usual_convolutions);
  const std::vector<tensor::Shape> shapes = shapes_of(model, batch);
  PrimitiveTimes times{.batch = batch, .threads = threads};
  for (const LayerSpec& layer : model.layers) {
    for (KernelTime& time :
         measure_layer(engine, layer, shapes[layer.inputs[0]], precision, before)) {
      times.kernels.push_back(std::move(time));
    }
  }
  times.kernels.push_back(measure_loss(engine, shapes.back(), before));
  times.kernels.push_back(measure_update(layout_of(model), update, before));
  return times;
}

namespace {

constexpr std::chrono::seconds step_budget{2};

// A step without an update scheme: nothing is reduced, and nobody waits.
class Alone final : public StepObserver {
 public:
  void make_ready(std::size_t /*block*/) override {}
  void gradients_final(std::size_t /*block*/) override {}
  void between_layers() override {}
};

}  // namespace

BenchmarkStep::BenchmarkStep(const Model& model, std::int64_t batch, int threads,
                             tensor::DataType precision, const UpdateBenchmark& update)
    : batch_(batch),
      layout_(layout_of(model)),
      parameters_(layout_.parameter_count),
      gradients_(layout_.parameter_count),
      statistics_(layout_.statistic_count),
      images_(static_cast<std::size_t>(batch * model.input.image())),
      labels_(static_cast<std::size_t>(batch)),
      engine_(threads, std::pmr::get_default_resource(), usual_convolutions),
      optimizer_(make_optimizer(update.optimizer, layout_, update.team)) {
  initialize(layout_, 1, parameters_, statistics_);
  float angle = 0.0F;
  for (float& value : images_) value = std::sin(angle += 0.7F);
  for (std::size_t i = 0; i < labels_.size(); ++i) {
    // Every class occurs, so that the loss is an ordinary one.
    labels_[i] = static_cast<std::int32_t>(i % static_cast<std::size_t>(model.classes));
  }
  executor_ = std::make_unique<Executor>(
      engine_, model, ModelState{parameters_, gradients_, statistics_},
      ExecutorOptions{.training_batches = {batch}, .evaluation_batch = 1, .precision = precision});
}

void BenchmarkStep::run() {
  Alone observer;
  (void)executor_->train({batch_, images_, labels_}, observer);
  optimizer_->update(0, parameters_, gradients_,
                     {.gradient_scale = 1.0F / static_cast<float>(batch_),
                      .learning_rate = 1e-4,
                      .index = steps_++});
}

StepTime measure_step(const Model& model, std::int64_t batch, int threads,
                      tensor::DataType precision, const UpdateBenchmark& update) {
  BenchmarkStep step(model, batch, threads, precision, update);
  return {batch, threads, median_microseconds(step_budget, [&] { step.run(); })};
}

}  // namespace rondo::train

// The kernels of ResNet-20 on 64 images, one by one. Arguments in a name: the layer (see
// `layers`), then threads, then the type: 0 is f32, 1 is bf16.

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include <rondo/tensor/batch_norm.hpp>
#include <rondo/tensor/convolution.hpp>
#include <rondo/tensor/elementwise.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/tensor.hpp>

namespace rondo::tensor {
namespace {

constexpr std::int64_t images = 64;

ConvolutionSpec layer(std::int64_t side, std::int64_t channels, std::int64_t filters,
                      std::int64_t kernel, std::int64_t stride) {
  const std::int64_t padding = kernel / 2;
  return {.input = {images, side, side, channels},
          .filters = filters,
          .kernel_h = kernel,
          .kernel_w = kernel,
          .stride = stride,
          .pad_top = padding,
          .pad_bottom = padding,
          .pad_left = padding,
          .pad_right = padding};
}

const std::array layers{
    layer(32, 3, 16, 3, 1),  layer(32, 16, 16, 3, 1), layer(32, 16, 32, 3, 2),
    layer(32, 16, 32, 1, 2), layer(16, 32, 32, 3, 1), layer(16, 32, 64, 3, 2),
    layer(16, 32, 64, 1, 2), layer(8, 64, 64, 3, 1),
};

DataType type_of(const benchmark::State& state) {
  return state.range(2) == 1 ? DataType::bf16 : DataType::f32;
}

AnyTensor filled(Engine& engine, const Shape& shape, DataType type) {
  Tensor tensor(shape);
  float value = 0.0F;
  for (float& element : tensor.span()) element = value = 0.7F - value * value;
  AnyTensor into(shape, type);
  convert(engine, tensor.view(), into.view());
  return into;
}

ConvolutionSpec layer_of(const benchmark::State& state) {
  ConvolutionSpec spec = layers.at(static_cast<std::size_t>(state.range(0)));
  spec.type = type_of(state);
  return spec;
}

struct ConvolutionRun {
  explicit ConvolutionRun(const benchmark::State& state)
      : spec(layer_of(state)),
        engine(static_cast<int>(state.range(1))),
        convolution(engine, spec),
        x(filled(engine, spec.input, spec.type)),
        y(filled(engine, spec.output(), spec.type)),
        weights(static_cast<std::size_t>(spec.weights()), 0.1F) {
    convolution.pack_weights(weights);
  }

  void report(benchmark::State& state) const {
    const Shape out = spec.output();
    const double products = static_cast<double>(out.n * out.h * out.w * spec.weights());
    state.counters["flops"] =
        benchmark::Counter(2.0 * products, benchmark::Counter::kIsIterationInvariantRate);
    state.SetLabel(convolution.implementation());
  }

  ConvolutionSpec spec;
  Engine engine;
  Convolution convolution;
  AnyTensor x, y;
  std::vector<float> weights;
};

void ConvolutionForward(benchmark::State& state) {
  ConvolutionRun run(state);
  for (auto _ : state) run.convolution.forward(run.x.view(), {}, run.y.view());
  run.report(state);
}

void ConvolutionBackwardData(benchmark::State& state) {
  ConvolutionRun run(state);
  for (auto _ : state) run.convolution.backward_data(run.y.view(), run.x.view());
  run.report(state);
}

void ConvolutionBackwardWeights(benchmark::State& state) {
  ConvolutionRun run(state);
  for (auto _ : state) run.convolution.backward_weights(run.x.view(), run.y.view(), {});
  run.report(state);
}

void PackAndUnpackWeights(benchmark::State& state) {
  ConvolutionRun run(state);
  for (auto _ : state) {
    run.convolution.pack_weights(run.weights);
    run.convolution.unpack_gradients(run.weights);
  }
}

struct BatchNormRun {
  BatchNormRun(const benchmark::State& state, bool residual)
      : spec({.input = layers.at(static_cast<std::size_t>(state.range(0))).output(),
              .residual = residual,
              .type = type_of(state)}),
        engine(static_cast<int>(state.range(1))),
        norm(engine, spec),
        x(filled(engine, spec.input, spec.type)),
        y(filled(engine, spec.input, spec.type)),
        residual_input(filled(engine, spec.input, spec.type)),
        values(static_cast<std::size_t>(spec.input.c), 0.9F) {}

  void forward() {
    norm.forward_training(x.view(), spec.residual ? residual_input.view() : AnyView(),
                          {values, values}, running_mean(), running_variance(), y.view());
  }
  void backward() {
    norm.backward(x.view(), y.view(), {values, values}, residual_input.view(), x.view(),
                  running_mean(), running_variance());
  }
  std::span<float> running_mean() { return first; }
  std::span<float> running_variance() { return second; }

  void report(benchmark::State& state, int passes) const {
    state.counters["bytes"] = benchmark::Counter(
        static_cast<double>(spec.input.size() * passes) * static_cast<double>(size_of(spec.type)),
        benchmark::Counter::kIsIterationInvariantRate);
  }

  BatchNormSpec spec;
  Engine engine;
  BatchNorm norm;
  AnyTensor x, y, residual_input;
  std::vector<float> values;
  std::vector<float> first = values;
  std::vector<float> second = values;
};

// Passes: how often memory of the layer's size is read or written.
void BatchNormForward(benchmark::State& state) {
  BatchNormRun run(state, false);
  for (auto _ : state) run.forward();
  run.report(state, 3);
}

void BatchNormAddForward(benchmark::State& state) {
  BatchNormRun run(state, true);
  for (auto _ : state) run.forward();
  run.report(state, 4);
}

void BatchNormBackward(benchmark::State& state) {
  BatchNormRun run(state, false);
  run.forward();
  for (auto _ : state) run.backward();
  run.report(state, 5);
}

void BatchNormAddBackward(benchmark::State& state) {
  BatchNormRun run(state, true);
  run.forward();
  for (auto _ : state) run.backward();
  run.report(state, 7);
}

// The bandwidth of memory: two reads and one write of the same size.
void Add(benchmark::State& state) {
  const Shape shape = layers.at(static_cast<std::size_t>(state.range(0))).output();
  Engine engine(static_cast<int>(state.range(1)));
  const AnyTensor from = filled(engine, shape, type_of(state));
  AnyTensor into = filled(engine, shape, type_of(state));
  for (auto _ : state) add(engine, from.view(), into.view());
  state.counters["bytes"] = benchmark::Counter(
      static_cast<double>(shape.size() * 3) * static_cast<double>(size_of(type_of(state))),
      benchmark::Counter::kIsIterationInvariantRate);
}

// Both types one after the other: only such pairs compare where neighbours are busy.
void add_runs(benchmark::internal::Benchmark* one, std::int64_t layer_index) {
  for (const int threads : {1, 2}) {
    for (const int type : {0, 1}) one->Args({layer_index, threads, type});
  }
  one->Unit(benchmark::kMicrosecond)->UseRealTime();
}

void all_layers(benchmark::internal::Benchmark* one) {
  for (std::size_t i = 0; i < layers.size(); ++i) add_runs(one, static_cast<std::int64_t>(i));
}

void three_sizes(benchmark::internal::Benchmark* one) {
  for (const int i : {1, 4, 7}) add_runs(one, i);
}

BENCHMARK(ConvolutionForward)->Apply(all_layers);
BENCHMARK(ConvolutionBackwardData)->Apply(all_layers);
BENCHMARK(ConvolutionBackwardWeights)->Apply(all_layers);
BENCHMARK(PackAndUnpackWeights)->Apply(all_layers);
BENCHMARK(BatchNormForward)->Apply(three_sizes);
BENCHMARK(BatchNormAddForward)->Apply(three_sizes);
BENCHMARK(BatchNormBackward)->Apply(three_sizes);
BENCHMARK(BatchNormAddBackward)->Apply(three_sizes);
BENCHMARK(Add)->Apply(three_sizes);

}  // namespace
}  // namespace rondo::tensor

BENCHMARK_MAIN();

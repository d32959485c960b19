#include <utility>
#include <vector>

#include <rondo/sync/optimizer.hpp>
#include <rondo/tensor/cross_entropy.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/tensor.hpp>
#include <rondo/train/model_benchmark.hpp>

#include "benchmark/layer_benchmark.hpp"
#include "benchmark/median_time.hpp"

namespace rondo::train {
namespace {

constexpr std::chrono::milliseconds optimizer_budget{15};

KernelTime measure_loss(tensor::Engine& engine, tensor::Shape shape) {
  const tensor::Tensor logits(shape, engine.memory());
  tensor::Tensor gradient(shape, engine.memory());
  const std::vector<std::int32_t> labels(static_cast<std::size_t>(shape.n), 0);
  const double time = median_microseconds(optimizer_budget, [&] {
    (void)tensor::softmax_cross_entropy(engine, logits.view(), labels, 0.0F, gradient.view());
  });
  return {"loss", "forward", "rondo", time, 0.0};
}

KernelTime measure_update(std::size_t size) {
  const auto optimizer = sync::make_sgd(size, {});
  std::vector<float> parameters(size, 1.0F);
  const std::vector<float> gradients(size, 1.0F);
  const double time = median_microseconds(optimizer_budget, [&] {
    optimizer->update(0, parameters, gradients, {.learning_rate = 1e-6});
  });
  return {"sgd", "update", "rondo", time, 0.0};
}

}  // namespace

PrimitiveTimes measure_primitives(const Model& model, std::int64_t batch, int threads) {
  tensor::Engine engine(threads);
  const std::vector<tensor::Shape> shapes = shapes_of(model, batch);
  PrimitiveTimes times{.batch = batch, .threads = threads};
  for (const LayerSpec& layer : model.layers) {
    for (KernelTime& time : measure_layer(engine, layer, shapes[layer.inputs[0]])) {
      times.kernels.push_back(std::move(time));
    }
  }
  times.kernels.push_back(measure_loss(engine, shapes.back()));
  times.kernels.push_back(measure_update(layout_of(model).parameter_count));
  return times;
}

}  // namespace rondo::train

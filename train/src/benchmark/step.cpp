#include <chrono>
#include <cmath>
#include <vector>

#include <rondo/sync/optimizer.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/train/executor.hpp>
#include <rondo/train/model_benchmark.hpp>

#include "benchmark/median_time.hpp"

namespace rondo::train {
namespace {

constexpr std::chrono::seconds step_budget{2};

class Alone final : public StepObserver {
 public:
  void make_ready(std::size_t /*group*/) override {}
  void gradients_final(std::size_t /*group*/) override {}
  void between_layers() override {}
};

}  // namespace

StepTime measure_step(const Model& model, std::int64_t batch, int threads) {
  const ParameterLayout layout = layout_of(model);
  std::vector<float> parameters(layout.parameter_count);
  std::vector<float> gradients(layout.parameter_count);
  std::vector<float> statistics(layout.statistic_count);
  initialize(layout, 1, parameters, statistics);
  std::vector<float> images(static_cast<std::size_t>(batch * model.input.image()));
  float angle = 0.0F;
  for (float& value : images) value = std::sin(angle += 0.7F);
  std::vector<std::int32_t> labels(static_cast<std::size_t>(batch));
  for (std::size_t i = 0; i < labels.size(); ++i) {
    labels[i] = static_cast<std::int32_t>(i % static_cast<std::size_t>(model.classes));
  }
  tensor::Engine engine(threads);
  Executor executor(engine, model, {parameters, gradients, statistics},
                    {.training_batches = {batch}, .evaluation_batch = 1});
  const auto optimizer = sync::make_sgd(layout.parameter_count, {});
  const sync::Update update{.gradient_scale = 1.0F / static_cast<float>(batch),
                            .learning_rate = 1e-4};
  Alone observer;
  const double time = median_microseconds(step_budget, [&] {
    (void)executor.train({batch, images, labels}, observer);
    optimizer->update(0, parameters, gradients, update);
  });
  return {batch, threads, time};
}

}  // namespace rondo::train

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <rondo/tensor/engine.hpp>
#include <rondo/train/executor.hpp>

#include "executor/activations.hpp"
#include "executor/backward_plan.hpp"
#include "executor/batch_plan.hpp"
#include "executor/layer_places.hpp"

namespace rondo::train {

class Executor::Impl {
 public:
  Impl(tensor::Engine& engine, const Model& model, const ModelState& state,
       const ExecutorOptions& options);

  tensor::Loss train(const Batch& batch, StepObserver& observer);
  tensor::Loss evaluate(const Batch& batch, std::span<const float> parameters,
                        std::span<const float> statistics);
  [[nodiscard]] std::span<const float> logits() const noexcept;
  [[nodiscard]] std::vector<std::string> implementations() const;

 private:
  void check_state() const;
  void check_batch(const Batch& batch) const;
  const BatchPlan& training_plan(std::int64_t images) const;
  const BatchPlan& evaluation_plan(std::int64_t images);

  // train() in its parts.
  void forward(const BatchPlan& plan, const float* input, StepObserver& observer);
  tensor::Loss loss(const Batch& batch);
  void backward(const BatchPlan& plan, const float* input, StepObserver& observer);
  void backward_layer(const BatchPlan& plan, const float* input, const BackwardStep& step,
                      StepObserver& observer);
  void train_nothing(StepObserver& observer);

  [[nodiscard]] ForwardOperands forward_operands(std::size_t layer, const BatchPlan& plan,
                                                 const float* input,
                                                 std::span<const float> parameters);
  [[nodiscard]] BackwardOperands backward_operands(const BackwardStep& step, const BatchPlan& plan,
                                                   const float* input);

  tensor::Engine& engine_;
  Model model_;
  ParameterLayout layout_;
  std::vector<LayerPlace> places_;
  ModelState state_;
  ExecutorOptions options_;
  BackwardPlan backward_;
  Activations activations_;
  std::vector<BatchPlan> plans_;  // training batches, the evaluation batch, at last a remainder
  std::size_t fixed_plans_ = 0;   // those made by the constructor
  std::int64_t evaluated_ = 0;
};

}  // namespace rondo::train

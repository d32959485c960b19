#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <rondo/tensor/engine.hpp>
#include <rondo/train/executor.hpp>

#include "executor/activations.hpp"
#include "executor/backward_plan.hpp"
#include "executor/batch_plan.hpp"
#include "executor/layer_places.hpp"
#include "executor/program.hpp"
#include "executor/reused_memory.hpp"

namespace rondo::train {

class Executor::Impl {
 public:
  Impl(tensor::Engine& engine, const Model& model, std::unique_ptr<Program> program,
       const ModelState& state, const ExecutorOptions& options);

  tensor::Loss train(const Batch& batch, StepObserver& observer);
  tensor::Loss evaluate(const Batch& batch, std::span<const float> parameters,
                        std::span<const float> statistics, Range judged);
  [[nodiscard]] std::span<const float> logits() const noexcept;
  [[nodiscard]] std::vector<std::string> implementations() const;

 private:
  void check_state() const;
  void check_batch(const Batch& batch) const;
  void add_plan(std::int64_t images, KernelPurpose purpose);
  const BatchPlan& training_plan(std::int64_t images) const;
  const BatchPlan& evaluation_plan(std::int64_t images);
  /// What the first node reads: the batch, or this rank's part of it.
  const float* input_of(const BatchPlan& plan, const Batch& batch);

  // train() in its parts.
  void forward(const BatchPlan& plan, const float* input, StepObserver& observer);
  /// Of the images in `judged`. `gradient`.data == nullptr: not wanted, else all are judged.
  tensor::Loss judge(const BatchPlan& plan, const Batch& batch, Range judged, float smoothing,
                     tensor::View<float> gradient);
  void backward(const BatchPlan& plan, const float* input, StepObserver& observer);
  void backward_layer(const BatchPlan& plan, const float* input, const BackwardStep& step,
                      StepObserver& observer);
  void train_nothing(StepObserver& observer);

  [[nodiscard]] ForwardOperands forward_operands(std::size_t node, const BatchPlan& plan,
                                                 const float* input,
                                                 std::span<const float> parameters);
  [[nodiscard]] BackwardOperands backward_operands(const BackwardStep& step, const BatchPlan& plan,
                                                   const float* input);

  tensor::Engine& engine_;
  Model model_;
  std::unique_ptr<Program> program_;
  std::vector<LayerPlace> places_;  // by node
  ModelState state_;
  ExecutorOptions options_;
  std::vector<std::int64_t> sizes_;  // of values
  BackwardPlan backward_;
  Activations activations_;
  ReusedMemory kernel_memory_;    // of all plans: one runs at a time
  tensor::Tensor input_;          // where a rank reads a part of the batch
  std::vector<BatchPlan> plans_;  // training batches, the evaluation batch, at last a remainder
  std::size_t fixed_plans_ = 0;   // those made by the constructor
  std::size_t evaluated_ = 0;     // elements of the last logits
};

}  // namespace rondo::train

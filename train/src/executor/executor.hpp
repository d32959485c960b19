#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <rondo/tensor/elementwise.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/tensor.hpp>
#include <rondo/train/executor.hpp>
#include <rondo/train/step_profile.hpp>

#include "executor/graph.hpp"
#include "executor/memory.hpp"
#include "executor/program.hpp"

namespace rondo::train {

/// The memory of a step: every value that a node writes, and the buffers of their gradients. All
/// batch sizes use the same memory: one step runs at a time.
class Activations {
 public:
  /// `sizes` are the most elements that each value has in any plan; `writers`, for messages, is
  /// what writes each value but the first.
  Activations(tensor::Engine& engine, tensor::DataType type, const std::vector<std::int64_t>& sizes,
              const BackwardPlan& backward, const std::vector<std::string>& writers);

  /// The model's input, which is the caller's, or what a node wrote.
  [[nodiscard]] tensor::ConstAnyView read(ValueId value, const void* input,
                                          const BatchPlan& plan) const {
    return {value == 0 ? input : values_[value - 1].data(), plan.shapes[value], type_};
  }

  [[nodiscard]] tensor::AnyView write(ValueId value, const BatchPlan& plan) {
    return {values_[value - 1].data(), plan.shapes[value], type_};
  }

  /// A gradient buffer in the shape of `value`.
  [[nodiscard]] tensor::AnyView gradient(BufferId buffer, ValueId value, const BatchPlan& plan) {
    return {gradients_[buffer].data(), plan.shapes[value], type_};
  }

 private:
  tensor::DataType type_;
  std::vector<tensor::AnyTensor> values_;     // value v is values_[v - 1]
  std::vector<tensor::AnyTensor> gradients_;  // by BufferId
};

/// The members of an Executor, and its passes.
class Executor::Impl {
 public:
  Impl(tensor::Engine& engine, const Model& model, std::unique_ptr<Program> program,
       const ModelState& state, const ExecutorOptions& options);

  tensor::Loss train(const Batch& batch, StepObserver& observer, const BatchPosition& position);
  tensor::Loss evaluate(const Batch& batch, std::span<const float> parameters,
                        std::span<const float> statistics, Range counted);
  [[nodiscard]] std::span<const float> infer(std::span<const float> images, std::int64_t samples);
  [[nodiscard]] std::string first_not_finite(const Batch& batch);
  [[nodiscard]] std::span<const float> logits() const noexcept;
  [[nodiscard]] std::int64_t counted() const noexcept { return counted_; }
  [[nodiscard]] Box images_read(std::int64_t samples) const;
  [[nodiscard]] std::vector<std::string> implementations() const;

 private:
  /// The weights that a forward pass for evaluation reads, and whether kernels have them already.
  struct InferenceWeights {
    std::span<const float> parameters = {};
    std::span<const float> statistics = {};
    bool packed = false;
  };
  // Memory and kernels, made by the constructor.
  void check_state() const;
  void prepare_nodes();
  void add_plan(std::int64_t images, KernelPurpose purpose);
  [[nodiscard]] const BatchPlan& training_plan(std::int64_t images) const;
  const BatchPlan& evaluation_plan(std::int64_t images);

  // The arrays that a pass reads and writes.
  void check_batch(const Batch& batch) const;
  /// The input of the first node: the batch, or this rank's part of it, or a copy in bf16.
  const void* input_of(const BatchPlan& plan, const Batch& batch);
  [[nodiscard]] RandomKey random_key(std::size_t node) const noexcept;
  /// All inputs of a node with several; valid until the next call.
  [[nodiscard]] std::span<const tensor::ConstAnyView> read_all(std::size_t node,
                                                               const BatchPlan& plan,
                                                               const void* input);
  [[nodiscard]] ForwardOperands forward_operands(std::size_t node, const BatchPlan& plan,
                                                 const void* input,
                                                 std::span<const float> parameters);
  /// In fp32, of all images whose logits this rank has.
  tensor::View<const float> logits_of(const BatchPlan& plan);
  /// The loss of the images in `counted`; a wanted `gradient` (data != nullptr) needs all images.
  tensor::Loss loss_of(const BatchPlan& plan, const Batch& batch, Range counted, float smoothing,
                       tensor::AnyView gradient);
  const BatchPlan& run_inference(const Batch& batch, const InferenceWeights& weights);

  // train() in its parts: training_step.cpp.
  void forward(const BatchPlan& plan, const void* input, StepObserver& observer);
  void prepare_weights(std::size_t node, const BatchPlan& plan, StepObserver& observer);
  [[nodiscard]] std::span<const tensor::AnyView> gradients_of_all(const BackwardStep& step,
                                                                  const BatchPlan& plan);
  [[nodiscard]] BackwardOperands backward_operands(const BackwardStep& step, const BatchPlan& plan,
                                                   const void* input);
  void backward(const BatchPlan& plan, const void* input, StepObserver& observer);
  void backward_layer(const BatchPlan& plan, const void* input, const BackwardStep& step,
                      StepObserver& observer);
  void train_nothing(StepObserver& observer);

  tensor::Engine& engine_;
  Model model_;
  std::unique_ptr<Program> program_;
  std::vector<LayerSpans> spans_;   // by node
  std::vector<std::string> names_;  // likewise, of layers; empty: a change of layout
  StepProfile* profile_ = nullptr;  // of the step that runs
  ModelState state_;
  ExecutorOptions options_;
  std::vector<std::int64_t> sizes_;  // of values
  BackwardPlan backward_;
  Activations activations_;
  ReusedMemory kernel_memory_;    // of all plans: one runs at a time
  tensor::AnyTensor input_;       // what a rank reads: a part of the batch, or its copy in bf16
  tensor::Tensor logits_;         // of bf16 ones in fp32, and then their gradient; else empty
  std::vector<BatchPlan> plans_;  // training batches, the evaluation batch, at last a remainder
  std::size_t fixed_plans_ = 0;   // those made by the constructor
  std::size_t evaluated_ = 0;     // elements of the last logits
  std::int64_t counted_ = 0;      // samples whose loss this rank has reported last
  std::int64_t packed_for_ = 0;   // infer(): as many images as the packed weights are for
  BatchPosition position_;        // of the batch that is trained
  std::vector<std::uint64_t> random_layers_;  // by node
  std::vector<tensor::ConstAnyView> read_;    // of the node that runs, as is the next
  std::vector<tensor::AnyView> input_gradients_;
};

}  // namespace rondo::train

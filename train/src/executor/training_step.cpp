// One step of training.
//
// For each layer in order: make_ready(), pack the weights, forward. Then the loss and the gradient
// of the logits. Then, for each layer from the last to the first, the gradients of its parameters,
// gradients_final(), and the gradient of its input. Between two layers the observer may advance
// communication. Reductions of gradients so travel behind the layers that come later.
//
// When a loss is NaN or Inf, the forward pass runs once more, to find the first value that is.
//
// Nothing here allocates: plans, buffers and operand lists were made by the constructor. Where the
// observer has a profile, each part of a step is timed; without one that costs a comparison.

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <rondo/tensor/elementwise.hpp>

#include "executor/executor.hpp"

namespace rondo::train {

// A rank without samples does not run kernels, unless they communicate with other ranks.
tensor::Loss Executor::Impl::train(const Batch& batch, StepObserver& observer,
                                   const BatchPosition& position) {
  check_batch(batch);
  position_ = position;
  counted_ = 0;
  if (batch.samples == 0 && !program_->runs_empty_batches()) {
    train_nothing(observer);
    return {};
  }

  profile_ = observer.profile();
  // A size that was not announced is an error: making kernels in the middle of a run would take
  // long, and memory that was not planned.
  const BatchPlan& plan = training_plan(batch.samples);
  const void* input = input_of(plan, batch);
  forward(plan, input, observer);
  tensor::Loss result;
  {
    const StepProfile::Part part(profile_, "loss");
    result = loss_of(plan, batch, {0, batch.samples}, options_.label_smoothing,
                     activations_.gradient(backward_.logits, spans_.size(), plan));
  }
  backward(plan, input, observer);
  return result;
}

void Executor::Impl::prepare_weights(std::size_t node, const BatchPlan& plan,
                                     StepObserver& observer) {
  const LayerSpans& spans = spans_[node];
  if (!spans.block) return;
  {
    const StepProfile::Part part(profile_, "make_ready", names_[node]);
    observer.make_ready(*spans.block);
  }
  const StepProfile::Part part(profile_, "pack", names_[node]);
  // In every step, because the parameters have changed since the last one.
  plan.kernels[node]->load(spans.parameters_of(state_.parameters));
}

// make_ready() may wait for the last update of the parameters; after it they can be packed.
void Executor::Impl::forward(const BatchPlan& plan, const void* input, StepObserver& observer) {
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    prepare_weights(i, plan, observer);
    {
      const StepProfile::Part part(profile_, "forward", names_[i]);
      plan.kernels[i]->forward_training(forward_operands(i, plan, input, state_.parameters),
                                        spans_[i].statistics_of(state_.statistics));
    }
    const StepProfile::Part part(profile_, "exchange");
    observer.between_layers();
  }
}

std::span<const tensor::AnyView> Executor::Impl::gradients_of_all(const BackwardStep& step,
                                                                  const BatchPlan& plan) {
  input_gradients_.clear();
  for (std::size_t i = 0; i < step.inputs.size(); ++i) {
    // An input without a gradient still has a shape, by which kernels count their way through dy.
    const ValueId value = program_->graph().nodes[step.node].inputs[i];
    const std::optional<BufferId>& dx = step.inputs[i].dx;
    input_gradients_.push_back(
        dx ? activations_.gradient(*dx, value, plan)
           : tensor::AnyView{nullptr, plan.shapes[value], options_.precision});
  }
  return input_gradients_;
}

BackwardOperands Executor::Impl::backward_operands(const BackwardStep& step, const BatchPlan& plan,
                                                   const void* input) {
  const ValueId x = program_->graph().nodes[step.node].inputs[0];
  const ValueId y = step.node + 1;
  BackwardOperands operands{
      .x = activations_.read(x, input, plan),
      .y = activations_.write(y, plan),
      .dy = activations_.gradient(step.dy, y, plan),
      .parameters = spans_[step.node].parameters_of(std::span<const float>(state_.parameters)),
      .gradients = spans_[step.node].parameters_of(state_.gradients),
      .input_gradients = gradients_of_all(step, plan),
      .random = random_key(step.node)};
  if (step.dy_also) operands.dy_also = activations_.gradient(*step.dy_also, y, plan);
  if (step.dx) operands.dx = activations_.gradient(*step.dx, x, plan);
  return operands;
}

// The gradients of the parameters come first, so that their reduction can begin early. Where a
// value has several readers, the gradients that they give are added up here, unless its writer adds
// them.
void Executor::Impl::backward_layer(const BatchPlan& plan, const void* input,
                                    const BackwardStep& step, StepObserver& observer) {
  LayerKernel& kernel = *plan.kernels[step.node];
  const BackwardOperands operands = backward_operands(step, plan, input);
  const std::string& name = names_[step.node];
  {
    const StepProfile::Part part(profile_, "backward_parameters", name);
    kernel.backward_parameters(operands);
  }
  if (spans_[step.node].block) {
    const StepProfile::Part part(profile_, "exchange", name);
    observer.gradients_final(*spans_[step.node].block);
  }
  {
    const StepProfile::Part part(profile_, "backward_input", name);
    kernel.backward_input(operands);
  }
  // Most values have one reader: its gradient is the value's, and nothing is added.
  if (!step.add_dx_to && !step.add_residual_to && step.inputs.empty()) return;
  const StepProfile::Part part(profile_, "add", name);
  const std::vector<ValueId>& inputs = program_->graph().nodes[step.node].inputs;
  if (step.add_dx_to) {
    tensor::add(engine_, operands.dx, activations_.gradient(*step.add_dx_to, inputs[0], plan));
  }

  if (step.add_residual_to) {
    tensor::add(engine_, operands.dy,
                activations_.gradient(*step.add_residual_to, inputs[1], plan));
  }

  for (std::size_t i = 0; i < step.inputs.size(); ++i) {
    if (!step.inputs[i].add_to) continue;
    tensor::add(engine_, operands.input_gradients[i],
                activations_.gradient(*step.inputs[i].add_to, inputs[i], plan));
  }
}

void Executor::Impl::backward(const BatchPlan& plan, const void* input, StepObserver& observer) {
  for (const BackwardStep& step : backward_.steps) {
    backward_layer(plan, input, step, observer);
    const StepProfile::Part part(profile_, "exchange");
    observer.between_layers();
  }
}

// The same calls in the same order, so that a rank without samples meets the others.
void Executor::Impl::train_nothing(StepObserver& observer) {
  for (const LayerSpans& spans : spans_) {
    if (spans.block) observer.make_ready(*spans.block);
    observer.between_layers();
  }

  for (const BackwardStep& step : backward_.steps) {
    const LayerSpans& spans = spans_[step.node];
    if (spans.block) {
      std::ranges::fill(spans.parameters_of(state_.gradients), 0.0F);
      // Zeros are this rank's part of the sum.
      observer.gradients_final(*spans.block);
    }
    observer.between_layers();
  }
}

// A loss that is not finite.

namespace {

bool is_finite(const tensor::ConstAnyView& values) {
  const auto size = static_cast<std::size_t>(values.shape.size());
  if (values.type == tensor::DataType::f32) {
    return tensor::all_finite(std::span(values.as<float>().data, size));
  }
  return tensor::all_finite(std::span(values.as<tensor::Bfloat16>().data, size));
}

}  // namespace

// All layers run, also behind the first bad one: on a grid other ranks wait for them.
std::string Executor::Impl::first_not_finite(const Batch& batch) {
  check_batch(batch);
  if (batch.samples == 0 && !program_->runs_empty_batches()) return {};
  const BatchPlan& plan = training_plan(batch.samples);
  const void* input = input_of(plan, batch);
  std::string first = tensor::all_finite(batch.images) ? "" : "the images";
  const auto note = [&](bool finite, const char* what, std::size_t node) {
    if (finite || !first.empty()) return;
    first = what + name_in_messages(program_->graph().nodes[node], model_);
  };
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    const auto parameters = spans_[i].parameters_of(std::span<const float>(state_.parameters));
    // Parameters before the output: broken parameters explain a broken output, and not the reverse.
    note(tensor::all_finite(parameters), "the parameters of ", i);
    if (spans_[i].block) plan.kernels[i]->load(parameters);
    plan.kernels[i]->forward_training(forward_operands(i, plan, input, state_.parameters),
                                      spans_[i].statistics_of(state_.statistics));
    note(is_finite(activations_.read(i + 1, input, plan)), "the output of ", i);
  }
  return first;
}

}  // namespace rondo::train

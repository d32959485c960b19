// Executor::Impl::train(): forward, loss, backward.

#include <algorithm>

#include <rondo/tensor/elementwise.hpp>

#include "executor/executor_impl.hpp"

namespace rondo::train {

tensor::Loss Executor::Impl::train(const Batch& batch, StepObserver& observer) {
  check_batch(batch);
  if (batch.samples == 0 && !program_->runs_empty_batches()) {
    train_nothing(observer);
    return {};
  }
  const BatchPlan& plan = training_plan(batch.samples);
  const float* input = input_of(plan, batch);
  forward(plan, input, observer);
  const tensor::Loss result = judge(plan, batch, {0, batch.samples}, options_.label_smoothing,
                                    activations_.gradient(backward_.logits, places_.size(), plan));
  backward(plan, input, observer);
  return result;
}

void Executor::Impl::forward(const BatchPlan& plan, const float* input, StepObserver& observer) {
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const LayerPlace& place = places_[i];
    if (place.group) {
      observer.make_ready(*place.group);
      plan.kernels[i]->load(place.parameters_of(state_.parameters));
    }
    plan.kernels[i]->forward_training(forward_operands(i, plan, input, state_.parameters),
                                      place.statistics_of(state_.statistics));
    observer.between_layers();
  }
}

BackwardOperands Executor::Impl::backward_operands(const BackwardStep& step, const BatchPlan& plan,
                                                   const float* input) {
  const ValueId x = program_->graph().nodes[step.node].inputs[0];
  const ValueId y = step.node + 1;
  BackwardOperands operands{
      .x = activations_.read(x, input, plan),
      .y = activations_.write(y, plan),
      .dy = activations_.gradient(step.dy, y, plan),
      .parameters = places_[step.node].parameters_of(std::span<const float>(state_.parameters)),
      .gradients = places_[step.node].parameters_of(state_.gradients)};
  if (step.dy_also) operands.dy_also = activations_.gradient(*step.dy_also, y, plan);
  if (step.dx) operands.dx = activations_.gradient(*step.dx, x, plan);
  return operands;
}

void Executor::Impl::backward_layer(const BatchPlan& plan, const float* input,
                                    const BackwardStep& step, StepObserver& observer) {
  LayerKernel& kernel = *plan.kernels[step.node];
  const BackwardOperands operands = backward_operands(step, plan, input);
  kernel.backward_parameters(operands);
  if (places_[step.node].group) observer.gradients_final(*places_[step.node].group);
  kernel.backward_input(operands);
  const std::vector<ValueId>& inputs = program_->graph().nodes[step.node].inputs;
  if (step.add_dx_to) {
    tensor::add(engine_, operands.dx, activations_.gradient(*step.add_dx_to, inputs[0], plan));
  }
  if (step.add_residual_to) {
    tensor::add(engine_, operands.dy,
                activations_.gradient(*step.add_residual_to, inputs[1], plan));
  }
}

void Executor::Impl::backward(const BatchPlan& plan, const float* input, StepObserver& observer) {
  for (const BackwardStep& step : backward_.steps) {
    backward_layer(plan, input, step, observer);
    observer.between_layers();
  }
}

// The same calls in the same order, so that a rank without samples meets the others.
void Executor::Impl::train_nothing(StepObserver& observer) {
  for (const LayerPlace& place : places_) {
    if (place.group) observer.make_ready(*place.group);
    observer.between_layers();
  }
  for (const BackwardStep& step : backward_.steps) {
    const LayerPlace& place = places_[step.node];
    if (place.group) {
      std::ranges::fill(place.parameters_of(state_.gradients), 0.0F);
      observer.gradients_final(*place.group);
    }
    observer.between_layers();
  }
}

}  // namespace rondo::train

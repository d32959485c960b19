#include "executor/executor_impl.hpp"

#include <algorithm>
#include <stdexcept>

namespace rondo::train {
namespace {

std::int64_t largest_batch(const ExecutorOptions& options) {
  std::int64_t largest = options.evaluation_batch;
  for (const std::int64_t batch : options.training_batches) largest = std::max(largest, batch);
  return largest;
}

void check_span(const char* what, std::size_t given, std::size_t wanted) {
  if (given == wanted) return;
  throw std::invalid_argument(std::string("Executor: ") + what + " has " + std::to_string(given) +
                              " elements and needs " + std::to_string(wanted));
}

const BatchPlan* find(const std::vector<BatchPlan>& plans, std::int64_t images) {
  const auto found = std::ranges::find(plans, images, &BatchPlan::images);
  return found == plans.end() ? nullptr : &*found;
}

}  // namespace

Executor::Impl::Impl(tensor::Engine& engine, const Model& model, const ModelState& state,
                     const ExecutorOptions& options)
    : engine_(engine),
      model_(model),
      layout_(layout_of(model)),
      places_(places_of(model, layout_)),
      state_(state),
      options_(options),
      backward_(plan_backward(model)),
      activations_(engine, model, backward_, largest_batch(options)) {
  check_state();
  if (options_.evaluation_batch < 1) {
    throw std::invalid_argument("Executor: evaluation_batch must be positive");
  }
  std::vector<std::int64_t> batches = options_.training_batches;
  batches.push_back(options_.evaluation_batch);
  for (const std::int64_t images : batches) {
    if (images <= 0 || find(plans_, images) != nullptr) continue;
    plans_.push_back(plans_.empty() ? make_batch_plan(engine_, model_, images)
                                    : make_batch_plan(plans_.front(), images));
  }
  fixed_plans_ = plans_.size();
}

void Executor::Impl::check_state() const {
  check_span("parameters", state_.parameters.size(), layout_.parameter_count);
  check_span("gradients", state_.gradients.size(), layout_.parameter_count);
  check_span("statistics", state_.statistics.size(), layout_.statistic_count);
}

void Executor::Impl::check_batch(const Batch& batch) const {
  const auto samples = static_cast<std::size_t>(batch.samples);
  check_span("batch.images", batch.images.size(),
             samples * static_cast<std::size_t>(model_.input.image()));
  check_span("batch.labels", batch.labels.size(), samples);
}

const BatchPlan& Executor::Impl::training_plan(std::int64_t images) const {
  const bool announced = std::ranges::count(options_.training_batches, images) > 0;
  if (announced) return *find(plans_, images);
  throw std::invalid_argument("Executor: a training batch of " + std::to_string(images) +
                              " was not announced in training_batches");
}

const BatchPlan& Executor::Impl::evaluation_plan(std::int64_t images) {
  if (images > options_.evaluation_batch) {
    throw std::invalid_argument("Executor: cannot evaluate " + std::to_string(images) +
                                " pictures at once; evaluation_batch is " +
                                std::to_string(options_.evaluation_batch));
  }
  if (const BatchPlan* plan = find(plans_, images)) return *plan;
  plans_.resize(fixed_plans_);  // only one remainder is kept
  plans_.push_back(make_batch_plan(plans_.front(), images));
  return plans_.back();
}

ForwardOperands Executor::Impl::forward_operands(std::size_t layer, const BatchPlan& plan,
                                                 const float* input,
                                                 std::span<const float> parameters) {
  const std::vector<ValueId>& inputs = model_.layers[layer].inputs;
  ForwardOperands operands{.x = activations_.read(inputs[0], input, plan.images),
                           .y = activations_.write(layer + 1, plan.images),
                           .parameters = places_[layer].parameters_of(parameters)};
  if (inputs.size() == 2) operands.residual = activations_.read(inputs[1], input, plan.images);
  return operands;
}

tensor::Loss Executor::Impl::evaluate(const Batch& batch, std::span<const float> parameters,
                                      std::span<const float> statistics) {
  check_batch(batch);
  check_span("parameters", parameters.size(), layout_.parameter_count);
  check_span("statistics", statistics.size(), layout_.statistic_count);
  evaluated_ = batch.samples;
  if (batch.samples == 0) return {};
  const BatchPlan& plan = evaluation_plan(batch.samples);
  for (std::size_t i = 0; i < model_.layers.size(); ++i) {
    plan.kernels[i]->load(places_[i].parameters_of(parameters));
    plan.kernels[i]->forward_inference(forward_operands(i, plan, batch.images.data(), parameters),
                                       places_[i].statistics_of(statistics));
  }
  const auto logits = activations_.read(model_.layers.size(), nullptr, batch.samples);
  return tensor::softmax_cross_entropy(engine_, logits, batch.labels, 0.0F, {});
}

std::span<const float> Executor::Impl::logits() const noexcept {
  const auto view = activations_.read(model_.layers.size(), nullptr, evaluated_);
  return {view.data, static_cast<std::size_t>(view.shape.size())};
}

std::vector<std::string> Executor::Impl::implementations() const {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < model_.layers.size(); ++i) {
    const std::string names = plans_.front().kernels[i]->implementation();
    if (!names.empty()) lines.push_back(model_.layers[i].name + ": " + names);
  }
  return lines;
}

}  // namespace rondo::train

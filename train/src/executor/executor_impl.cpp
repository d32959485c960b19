#include "executor/executor_impl.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "grid/box_copy.hpp"

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

// A change of layout learns nothing.
std::vector<LayerPlace> places_of_nodes(const Program& program, const Model& model) {
  const std::vector<LayerPlace> layers = places_of(model, program.layout());
  std::vector<LayerPlace> places;
  for (const GraphNode& node : program.graph().nodes) {
    places.push_back(node.layer ? layers[*node.layer] : LayerPlace{});
  }
  return places;
}

std::vector<std::string> names_of_nodes(const Program& program, const Model& model) {
  std::vector<std::string> names;
  for (const GraphNode& node : program.graph().nodes) {
    names.push_back(node.layer ? "layer " + model.layers[*node.layer].name
                               : std::string("a change of layout"));
  }
  return names;
}

const BatchPlan* find(const std::vector<BatchPlan>& plans, std::int64_t images) {
  const auto found = std::ranges::find(plans, images, &BatchPlan::images);
  return found == plans.end() ? nullptr : &*found;
}

}  // namespace

Executor::Impl::Impl(tensor::Engine& engine, const Model& model, std::unique_ptr<Program> program,
                     const ModelState& state, const ExecutorOptions& options)
    : engine_(engine),
      model_(model),
      program_(std::move(program)),
      places_(places_of_nodes(*program_, model)),
      state_(state),
      options_(options),
      sizes_(program_->sizes(largest_batch(options))),
      backward_(plan_backward(program_->graph(), sizes_)),
      activations_(engine, sizes_, backward_, names_of_nodes(*program_, model)) {
  check_state();
  if (options_.evaluation_batch < 1) {
    throw std::invalid_argument("Executor: evaluation_batch must be positive");
  }
  for (const std::int64_t images : options_.training_batches) add_plan(images);
  add_plan(options_.evaluation_batch);
  fixed_plans_ = plans_.size();
  if (plans_.front().input) {
    input_ = tensor::Tensor({1, 1, 1, std::max<std::int64_t>(sizes_.front(), 1)}, engine.memory());
  }
}

void Executor::Impl::add_plan(std::int64_t images) {
  if (find(plans_, images) != nullptr || (images == 0 && !program_->runs_empty_batches())) return;
  plans_.push_back(program_->plan(images, plans_.empty() ? nullptr : &plans_.front()));
}

void Executor::Impl::check_state() const {
  check_span("parameters", state_.parameters.size(), program_->layout().parameter_count);
  check_span("gradients", state_.gradients.size(), program_->layout().parameter_count);
  check_span("statistics", state_.statistics.size(), program_->layout().statistic_count);
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
  add_plan(images);
  return plans_.back();
}

const float* Executor::Impl::input_of(const BatchPlan& plan, const Batch& batch) {
  if (!plan.input) return batch.images.data();
  const tensor::Shape pictures = model_.input.with_n(plan.images);
  copy_box(*plan.input, {batch.images.data(), whole(pictures)}, {input_.data(), *plan.input});
  return input_.data();
}

ForwardOperands Executor::Impl::forward_operands(std::size_t node, const BatchPlan& plan,
                                                 const float* input,
                                                 std::span<const float> parameters) {
  const std::vector<ValueId>& inputs = program_->graph().nodes[node].inputs;
  ForwardOperands operands{.x = activations_.read(inputs[0], input, plan),
                           .y = activations_.write(node + 1, plan),
                           .parameters = places_[node].parameters_of(parameters)};
  if (inputs.size() == 2) operands.residual = activations_.read(inputs[1], input, plan);
  return operands;
}

tensor::Loss Executor::Impl::evaluate(const Batch& batch, std::span<const float> parameters,
                                      std::span<const float> statistics) {
  check_batch(batch);
  check_span("parameters", parameters.size(), program_->layout().parameter_count);
  check_span("statistics", statistics.size(), program_->layout().statistic_count);
  evaluated_ = 0;
  if (batch.samples == 0) return {};
  const BatchPlan& plan = evaluation_plan(batch.samples);
  const float* input = input_of(plan, batch);
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (places_[i].group) plan.kernels[i]->load(places_[i].parameters_of(parameters));
    plan.kernels[i]->forward_inference(forward_operands(i, plan, input, parameters),
                                       places_[i].statistics_of(statistics));
  }
  evaluated_ = static_cast<std::size_t>(plan.shapes.back().size());
  return judge(plan, batch, 0.0F, {});
}

// The logits are those of the judged images; where several ranks hold the same, one reports them.
tensor::Loss Executor::Impl::judge(const BatchPlan& plan, const Batch& batch, float smoothing,
                                   tensor::View<float> gradient) {
  const auto first = static_cast<std::size_t>(plan.judged.first);
  const auto count = static_cast<std::size_t>(plan.judged.size());
  const tensor::Loss loss =
      tensor::softmax_cross_entropy(engine_, activations_.read(places_.size(), nullptr, plan),
                                    batch.labels.subspan(first, count), smoothing, gradient);
  return plan.counts ? loss : tensor::Loss{};
}

std::span<const float> Executor::Impl::logits() const noexcept {
  return {activations_.read(places_.size(), nullptr, plans_.front()).data, evaluated_};
}

std::vector<std::string> Executor::Impl::implementations() const {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const std::string names = plans_.front().kernels[i]->implementation();
    if (names.empty()) continue;
    lines.push_back(model_.layers[*program_->graph().nodes[i].layer].name + ": " + names);
  }
  return lines;
}

}  // namespace rondo::train

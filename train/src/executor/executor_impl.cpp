#include "executor/executor_impl.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "grid/box_copy.hpp"

namespace rondo::train {
namespace {

std::int64_t largest_training_batch(const ExecutorOptions& options) {
  const std::vector<std::int64_t>& batches = options.training_batches;
  return batches.empty() ? 0 : *std::ranges::max_element(batches);
}

std::int64_t largest_batch(const ExecutorOptions& options) {
  return std::max(options.evaluation_batch, largest_training_batch(options));
}

ExecutorOptions completed(ExecutorOptions options) {
  if (options.evaluation_batch == 0) options.evaluation_batch = largest_training_batch(options);
  if (options.evaluation_batch > 0) return options;
  throw std::invalid_argument("Executor: evaluation_batch must be positive");
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

/// While it lives, layers are made in `memory`, for another user than those before.
class LayerMemory {
 public:
  LayerMemory(tensor::Engine& engine, ReusedMemory& memory) : engine_(engine) {
    memory.rewind();
    engine_.set_layer_memory(&memory);
  }
  LayerMemory(const LayerMemory&) = delete;
  LayerMemory& operator=(const LayerMemory&) = delete;
  ~LayerMemory() { engine_.set_layer_memory(nullptr); }

 private:
  tensor::Engine& engine_;
};

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
      options_(completed(options)),
      sizes_(program_->sizes(largest_batch(options_))),
      backward_(options.training_batches.empty() ? BackwardPlan{}
                                                 : plan_backward(program_->graph(), sizes_)),
      activations_(engine, sizes_, backward_, names_of_nodes(*program_, model)),
      kernel_memory_(engine.memory()) {
  check_state();
  for (const std::int64_t images : options_.training_batches)
    add_plan(images, KernelPurpose::training);
  add_plan(options_.evaluation_batch, KernelPurpose::evaluation);
  fixed_plans_ = plans_.size();
  if (plans_.front().input) {
    input_ = tensor::Tensor({1, 1, 1, std::max<std::int64_t>(sizes_.front(), 1)}, engine.memory());
  }
}

// Evaluation runs the kernels for training where there are some for as many images.
void Executor::Impl::add_plan(std::int64_t images, KernelPurpose purpose) {
  if (find(plans_, images) != nullptr || (images == 0 && !program_->runs_empty_batches())) return;
  const LayerMemory memory(engine_, kernel_memory_);
  plans_.push_back(program_->plan(images, purpose));
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
  add_plan(images, KernelPurpose::evaluation);
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
                                      std::span<const float> statistics, Range judged) {
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
  return judge(plan, batch, judged, 0.0F, {});
}

// This rank has the logits of some images; where several ranks hold the same, one reports them.
tensor::Loss Executor::Impl::judge(const BatchPlan& plan, const Batch& batch, Range judged,
                                   float smoothing, tensor::View<float> gradient) {
  const Range own = intersection(plan.judged, judged);
  tensor::View<const float> logits = activations_.read(places_.size(), nullptr, plan);
  logits = {logits.image(own.first - plan.judged.first), logits.shape.with_n(own.size())};
  const auto labels = batch.labels.subspan(static_cast<std::size_t>(own.first),
                                           static_cast<std::size_t>(own.size()));
  const tensor::Loss loss =
      tensor::softmax_cross_entropy(engine_, logits, labels, smoothing, gradient);
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

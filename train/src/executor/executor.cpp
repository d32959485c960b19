// Runs a model, step by step, or evaluates it.
//
// One step: for each layer in order, make_ready(), pack the weights, forward. Then the loss and the
// gradient of the logits. Then, for each layer from the last to the first, the gradients of its
// parameters, gradients_final(), and the gradient of its input. Between two layers the observer may
// advance communication. Reductions of gradients so travel behind the layers that come later.
//
// All memory is made by the constructor, for the largest batch, and shared by all batch sizes, of
// which one runs at a time. A step allocates nothing.

#include <rondo/train/executor.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <rondo/tensor/elementwise.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/tensor.hpp>
#include <rondo/train/step_profile.hpp>

#include "data/random.hpp"
#include "executor/graph.hpp"
#include "executor/memory.hpp"
#include "executor/program.hpp"
#include "grid/exchange.hpp"

namespace rondo::train {
namespace {

// Never empty: a view of no elements still has an address, which says that it is there.
tensor::AnyTensor make(tensor::Engine& engine, std::int64_t elements, tensor::DataType type) {
  return tensor::AnyTensor({1, 1, 1, std::max<std::int64_t>(elements, 1)}, type, engine.memory());
}

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

// Ranks of a grid exchange parts of activations as floats.
const ExecutorOptions& in_f32(const ExecutorOptions& options) {
  if (options.precision == tensor::DataType::f32) return options;
  throw std::invalid_argument(
      "Executor: a rank's part of a grid that splits layers computes in fp32 alone");
}

void check_span(const char* what, std::size_t given, std::size_t wanted) {
  if (given == wanted) return;
  throw std::invalid_argument(std::string("Executor: ") + what + " has " + std::to_string(given) +
                              " elements and needs " + std::to_string(wanted));
}

// A change of layout learns nothing.
std::vector<LayerSpans> spans_of_nodes(const Program& program, const Model& model) {
  const std::vector<LayerSpans> layers = spans_of(model, program.layout());
  std::vector<LayerSpans> spans;
  for (const GraphNode& node : program.graph().nodes) {
    spans.push_back(node.layer ? layers[*node.layer] : LayerSpans{});
  }

  return spans;
}

std::vector<std::string> layer_names_of_nodes(const Program& program, const Model& model) {
  std::vector<std::string> names;
  for (const GraphNode& node : program.graph().nodes) {
    names.push_back(node.layer ? model.layers[*node.layer].name : std::string());
  }
  return names;
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

/// The memory of a step: every value that a node writes, and the buffers of their gradients. All
/// batch sizes use the same memory: one step runs at a time.
class Activations {
 public:
  /// `sizes` are the most elements that each value has in any plan; `writers`, for messages, is
  /// what writes each value but the first.
  Activations(tensor::Engine& engine, tensor::DataType type, const std::vector<std::int64_t>& sizes,
              const BackwardPlan& backward, const std::vector<std::string>& writers)
      : type_(type) {
    for (std::size_t value = 1; value < sizes.size(); ++value) {
      const MemoryScope scope(engine.memory(), "the output of " + writers[value - 1]);
      values_.push_back(make(engine, sizes[value], type));
    }
    const MemoryScope scope(engine.memory(), "a gradient of activations");
    for (const std::int64_t elements : backward.elements) {
      gradients_.push_back(make(engine, elements, type));
    }
  }

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

class Executor::Impl {
 public:
  Impl(tensor::Engine& engine, const Model& model, std::unique_ptr<Program> program,
       const ModelState& state, const ExecutorOptions& options);

  tensor::Loss train(const Batch& batch, StepObserver& observer, const BatchPosition& position);
  tensor::Loss evaluate(const Batch& batch, std::span<const float> parameters,
                        std::span<const float> statistics, Range judged);
  [[nodiscard]] std::span<const float> infer(std::span<const float> images, std::int64_t samples);
  [[nodiscard]] std::string first_not_finite(const Batch& batch);
  [[nodiscard]] std::span<const float> logits() const noexcept;
  [[nodiscard]] Range samples_read(std::int64_t samples) const;
  [[nodiscard]] std::vector<std::string> implementations() const;

 private:
  /// What a forward pass for evaluation reads, and whether kernels have its weights already.
  struct InferenceWeights {
    std::span<const float> parameters = {};
    std::span<const float> statistics = {};
    bool packed = false;
  };
  const BatchPlan& run_inference(const Batch& batch, const InferenceWeights& weights);
  void check_state() const;
  void prepare_nodes();
  void check_batch(const Batch& batch) const;
  void add_plan(std::int64_t images, KernelPurpose purpose);
  const BatchPlan& training_plan(std::int64_t images) const;
  const BatchPlan& evaluation_plan(std::int64_t images);
  /// What the first node reads: the batch, or this rank's part of it, or a copy in bf16.
  const void* input_of(const BatchPlan& plan, const Batch& batch);
  /// In fp32, of all images whose logits this rank has.
  tensor::View<const float> logits_of(const BatchPlan& plan);

  // train() in its parts.
  void forward(const BatchPlan& plan, const void* input, StepObserver& observer);
  void prepare_weights(std::size_t node, const BatchPlan& plan, StepObserver& observer);
  /// Of the images in `judged`. `gradient`.data == nullptr: not wanted, else all are judged.
  tensor::Loss judge(const BatchPlan& plan, const Batch& batch, Range judged, float smoothing,
                     tensor::AnyView gradient);
  void backward(const BatchPlan& plan, const void* input, StepObserver& observer);
  void backward_layer(const BatchPlan& plan, const void* input, const BackwardStep& step,
                      StepObserver& observer);
  void train_nothing(StepObserver& observer);

  /// What a node of several inputs reads; until the next call.
  [[nodiscard]] std::span<const tensor::ConstAnyView> read_all(std::size_t node,
                                                               const BatchPlan& plan,
                                                               const void* input);
  [[nodiscard]] std::span<const tensor::AnyView> gradients_of_all(const BackwardStep& step,
                                                                  const BatchPlan& plan);
  [[nodiscard]] RandomKey random_key(std::size_t node) const noexcept;
  [[nodiscard]] ForwardOperands forward_operands(std::size_t node, const BatchPlan& plan,
                                                 const void* input,
                                                 std::span<const float> parameters);
  [[nodiscard]] BackwardOperands backward_operands(const BackwardStep& step, const BatchPlan& plan,
                                                   const void* input);

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
  std::int64_t packed_for_ = 0;   // infer(): as many images as the packed weights are for
  BatchPosition position_;        // of the batch that is trained
  std::vector<std::uint64_t> random_layers_;  // by node
  std::vector<tensor::ConstAnyView> read_;    // of the node that runs, as is the next
  std::vector<tensor::AnyView> input_gradients_;
};

Executor::Impl::Impl(tensor::Engine& engine, const Model& model, std::unique_ptr<Program> program,
                     const ModelState& state, const ExecutorOptions& options)
    : engine_(engine),
      model_(model),
      program_(std::move(program)),
      spans_(spans_of_nodes(*program_, model)),
      names_(layer_names_of_nodes(*program_, model)),
      state_(state),
      options_(completed(options)),
      sizes_(program_->sizes(largest_batch(options_))),
      backward_(options.training_batches.empty() ? BackwardPlan{}
                                                 : plan_backward(program_->graph(), sizes_)),
      activations_(engine, options_.precision, sizes_, backward_, names_of_nodes(*program_, model)),
      kernel_memory_(engine.memory()) {
  check_state();
  prepare_nodes();
  for (const std::int64_t images : options_.training_batches)
    add_plan(images, KernelPurpose::training);
  add_plan(options_.evaluation_batch, KernelPurpose::evaluation);
  fixed_plans_ = plans_.size();
  const bool narrow = options_.precision != tensor::DataType::f32;
  if (plans_.front().input || narrow) input_ = make(engine, sizes_.front(), options_.precision);
  if (narrow) logits_ = tensor::Tensor({1, 1, 1, sizes_.back()}, engine.memory());
}

// Evaluation runs the kernels for training where there are some for as many images.
void Executor::Impl::add_plan(std::int64_t images, KernelPurpose purpose) {
  if (find(plans_, images) != nullptr || (images == 0 && !program_->runs_empty_batches())) return;
  const LayerMemory memory(engine_, kernel_memory_);
  plans_.push_back(program_->plan(images, purpose));
}

void Executor::Impl::check_state() const {
  check_span("parameters", state_.parameters.size(), program_->layout().parameter_count);
  if (!options_.training_batches.empty()) {
    check_span("gradients", state_.gradients.size(), program_->layout().parameter_count);
  }
  check_span("statistics", state_.statistics.size(), program_->layout().statistic_count);
}

// So that no step allocates.
void Executor::Impl::prepare_nodes() {
  std::size_t most = 0;
  for (const GraphNode& node : program_->graph().nodes) {
    most = std::max(most, node.inputs.size());
    random_layers_.push_back(node.layer ? layer_seed(options_.seed, model_.layers[*node.layer].name)
                                        : 0);
  }
  read_.reserve(most);
  input_gradients_.reserve(most);
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

// The last evaluation batch of a data set is usually smaller. Its kernels are made when it comes.
const BatchPlan& Executor::Impl::evaluation_plan(std::int64_t images) {
  if (images > options_.evaluation_batch) {
    throw std::invalid_argument("Executor: cannot evaluate " + std::to_string(images) +
                                " images at once; evaluation_batch is " +
                                std::to_string(options_.evaluation_batch));
  }

  if (const BatchPlan* plan = find(plans_, images)) return *plan;
  plans_.resize(fixed_plans_);  // only one remainder is kept
  add_plan(images, KernelPurpose::evaluation);
  return plans_.back();
}

// A rank that reads a part of the batch gets a copy of the part: kernels want dense memory. The
// batch is fp32, and rounded once for all readers.
const void* Executor::Impl::input_of(const BatchPlan& plan, const Batch& batch) {
  const tensor::Shape images = model_.input.with_n(plan.images);
  if (options_.precision != tensor::DataType::f32) {
    tensor::convert(engine_, tensor::View<const float>(batch.images.data(), images),
                    {input_.data(), images, options_.precision});
    return input_.data();
  }
  if (!plan.input) return batch.images.data();
  copy_box(*plan.input, {batch.images.data(), whole(images)},
           {static_cast<float*>(input_.data()), *plan.input});
  return input_.data();
}

tensor::View<const float> Executor::Impl::logits_of(const BatchPlan& plan) {
  const tensor::ConstAnyView logits = activations_.read(spans_.size(), nullptr, plan);
  if (logits.type == tensor::DataType::f32) return logits.as<float>();
  const tensor::View<float> wide(logits_.data(), logits.shape);
  tensor::convert(engine_, logits, wide);
  return wide;
}

ForwardOperands Executor::Impl::forward_operands(std::size_t node, const BatchPlan& plan,
                                                 const void* input,
                                                 std::span<const float> parameters) {
  const std::vector<ValueId>& inputs = program_->graph().nodes[node].inputs;
  ForwardOperands operands{.x = activations_.read(inputs[0], input, plan),
                           .y = activations_.write(node + 1, plan),
                           .parameters = spans_[node].parameters_of(parameters),
                           .random = random_key(node)};
  if (program_->graph().nodes[node].several) {
    operands.inputs = read_all(node, plan, input);
  } else if (inputs.size() == 2) {
    operands.residual = activations_.read(inputs[1], input, plan);
  }
  return operands;
}

std::span<const tensor::ConstAnyView> Executor::Impl::read_all(std::size_t node,
                                                               const BatchPlan& plan,
                                                               const void* input) {
  read_.clear();
  for (const ValueId value : program_->graph().nodes[node].inputs) {
    read_.push_back(activations_.read(value, input, plan));
  }
  return read_;
}

std::span<const tensor::AnyView> Executor::Impl::gradients_of_all(const BackwardStep& step,
                                                                  const BatchPlan& plan) {
  input_gradients_.clear();
  for (std::size_t i = 0; i < step.inputs.size(); ++i) {
    const ValueId value = program_->graph().nodes[step.node].inputs[i];
    const std::optional<BufferId>& dx = step.inputs[i].dx;
    input_gradients_.push_back(
        dx ? activations_.gradient(*dx, value, plan)
           : tensor::AnyView{nullptr, plan.shapes[value], options_.precision});
  }
  return input_gradients_;
}

RandomKey Executor::Impl::random_key(std::size_t node) const noexcept {
  return {.layer = random_layers_[node],
          .step = position_.step,
          .first_sample = position_.first_sample};
}

tensor::Loss Executor::Impl::evaluate(const Batch& batch, std::span<const float> parameters,
                                      std::span<const float> statistics, Range judged) {
  check_batch(batch);
  check_span("parameters", parameters.size(), program_->layout().parameter_count);
  check_span("statistics", statistics.size(), program_->layout().statistic_count);
  evaluated_ = 0;
  packed_for_ = 0;
  if (batch.samples == 0) return {};
  const BatchPlan& plan = run_inference(batch, {parameters, statistics});
  return judge(plan, batch, judged, 0.0F, {});
}

const BatchPlan& Executor::Impl::run_inference(const Batch& batch,
                                               const InferenceWeights& weights) {
  const BatchPlan& plan = evaluation_plan(batch.samples);
  const void* input = input_of(plan, batch);
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    const bool packs = spans_[i].block && !weights.packed;
    if (packs) plan.kernels[i]->load(spans_[i].parameters_of(weights.parameters));
    plan.kernels[i]->forward_inference(forward_operands(i, plan, input, weights.parameters),
                                       spans_[i].statistics_of(weights.statistics));
  }

  evaluated_ = static_cast<std::size_t>(plan.shapes.back().size());
  return plan;
}

// All batch sizes share the memory of packed weights: they are those of the size that ran last.
std::span<const float> Executor::Impl::infer(std::span<const float> images, std::int64_t samples) {
  check_span("images", images.size(),
             static_cast<std::size_t>(samples) * static_cast<std::size_t>(model_.input.image()));
  evaluated_ = 0;
  if (samples == 0) return {};
  const bool packed = std::exchange(packed_for_, samples) == samples;
  run_inference({.samples = samples, .images = images},
                {state_.parameters, state_.statistics, packed});
  return logits();
}

// This rank has the logits of some images; where several ranks hold the same, one reports them.
tensor::Loss Executor::Impl::judge(const BatchPlan& plan, const Batch& batch, Range judged,
                                   float smoothing, tensor::AnyView gradient) {
  const Range own = intersection(plan.judged, judged);
  tensor::View<const float> logits = logits_of(plan);
  logits = {logits.image(own.first - plan.judged.first), logits.shape.with_n(own.size())};
  const auto labels = batch.labels.subspan(static_cast<std::size_t>(own.first),
                                           static_cast<std::size_t>(own.size()));
  // The gradient may replace the logits that it comes from.
  const bool narrow = gradient.type != tensor::DataType::f32;
  const tensor::View<float> wide =
      narrow ? tensor::View<float>(logits_.data(), gradient.shape) : gradient.as<float>();
  const tensor::Loss loss = tensor::softmax_cross_entropy(engine_, logits, labels, smoothing, wide);
  if (narrow) tensor::convert(engine_, wide, gradient);
  return plan.counts ? loss : tensor::Loss{};
}

std::span<const float> Executor::Impl::logits() const noexcept {
  if (logits_.data() != nullptr) return logits_.span().first(evaluated_);
  const auto logits = activations_.read(spans_.size(), nullptr, plans_.front());
  return {logits.as<float>().data, evaluated_};
}

Range Executor::Impl::samples_read(std::int64_t samples) const {
  const BatchPlan* const plan = find(plans_, samples);
  return plan != nullptr && plan->input ? plan->input->n : Range{0, samples};
}

std::vector<std::string> Executor::Impl::implementations() const {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    const std::string names = plans_.front().kernels[i]->implementation();
    if (names.empty()) continue;
    lines.push_back(model_.layers[*program_->graph().nodes[i].layer].name + ": " + names);
  }

  return lines;
}

// Training.

// A rank without samples does not run kernels, unless they communicate with other ranks.
tensor::Loss Executor::Impl::train(const Batch& batch, StepObserver& observer,
                                   const BatchPosition& position) {
  check_batch(batch);
  position_ = position;
  if (batch.samples == 0 && !program_->runs_empty_batches()) {
    train_nothing(observer);
    return {};
  }

  profile_ = observer.profile();
  const BatchPlan& plan = training_plan(batch.samples);
  const void* input = input_of(plan, batch);
  forward(plan, input, observer);
  tensor::Loss result;
  {
    const StepProfile::Part part(profile_, "loss");
    result = judge(plan, batch, {0, batch.samples}, options_.label_smoothing,
                   activations_.gradient(backward_.logits, spans_.size(), plan));
  }
  backward(plan, input, observer);
  return result;
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

namespace {

bool is_finite(std::span<const float> values) {
  return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

bool is_finite(const tensor::ConstAnyView& values) {
  const auto size = static_cast<std::size_t>(values.shape.size());
  if (values.type == tensor::DataType::f32) {
    return is_finite(std::span(values.as<float>().data, size));
  }
  return std::ranges::all_of(
      std::span(values.as<tensor::Bfloat16>().data, size),
      [](tensor::Bfloat16 value) { return std::isfinite(tensor::to_float(value)); });
}

}  // namespace

// All layers run, also behind the first bad one: on a grid other ranks wait for them.
std::string Executor::Impl::first_not_finite(const Batch& batch) {
  check_batch(batch);
  if (batch.samples == 0 && !program_->runs_empty_batches()) return {};
  const BatchPlan& plan = training_plan(batch.samples);
  const void* input = input_of(plan, batch);
  std::string first = is_finite(batch.images) ? "" : "the images";
  const auto note = [&](bool finite, const char* what, std::size_t node) {
    if (finite || !first.empty()) return;
    const GraphNode& at = program_->graph().nodes[node];
    first = std::string(what) + (at.layer ? "layer " + model_.layers[*at.layer].name
                                          : std::string("a change of layout"));
  };
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    const auto parameters = spans_[i].parameters_of(std::span<const float>(state_.parameters));
    note(is_finite(parameters), "the parameters of ", i);
    if (spans_[i].block) plan.kernels[i]->load(parameters);
    plan.kernels[i]->forward_training(forward_operands(i, plan, input, state_.parameters),
                                      spans_[i].statistics_of(state_.statistics));
    note(is_finite(activations_.read(i + 1, input, plan)), "the output of ", i);
  }
  return first;
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
  plan.kernels[node]->load(spans.parameters_of(state_.parameters));
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
      observer.gradients_final(*spans.block);
    }
    observer.between_layers();
  }
}

// The interface.

StepObserver::~StepObserver() = default;

Executor::Executor(tensor::Engine& engine, const Model& model, const ModelState& state,
                   const ExecutorOptions& options)
    : impl_(std::make_unique<Impl>(
          engine, model, make_whole_program(engine, model, options.precision), state, options)) {}

Executor::Executor(tensor::Engine& engine, const Model& model, const GridPart& part,
                   const ModelState& state, const ExecutorOptions& options)
    : impl_(std::make_unique<Impl>(engine, model, make_split_program(engine, model, part), state,
                                   in_f32(options))) {}

Executor::~Executor() = default;

tensor::Loss Executor::train(const Batch& batch, StepObserver& observer,
                             const BatchPosition& position) {
  return impl_->train(batch, observer, position);
}

tensor::Loss Executor::evaluate(const Batch& batch, std::span<const float> parameters,
                                std::span<const float> statistics) {
  return impl_->evaluate(batch, parameters, statistics, {0, batch.samples});
}

tensor::Loss Executor::evaluate(const Batch& batch, std::span<const float> parameters,
                                std::span<const float> statistics, Range judged) {
  return impl_->evaluate(batch, parameters, statistics, judged);
}

std::span<const float> Executor::infer(std::span<const float> images, std::int64_t samples) {
  return impl_->infer(images, samples);
}

std::string Executor::first_not_finite(const Batch& batch) {
  return impl_->first_not_finite(batch);
}

std::span<const float> Executor::logits() const noexcept { return impl_->logits(); }

Range Executor::samples_read(std::int64_t samples) const { return impl_->samples_read(samples); }

std::vector<std::string> Executor::implementations() const { return impl_->implementations(); }

}  // namespace rondo::train

// Makes what a model needs to run, and evaluates it; training_step.cpp trains it.
//
// All memory is made by the constructor, for the largest batch, and shared by all batch sizes, of
// which one runs at a time: a step allocates nothing. For each batch size there is a plan, which
// has the kernels and the shapes of all values. Evaluation runs the kernels for training where
// there are some for as many images; the last batch of a data set gets kernels of its own.
//
// Files: executor.hpp declares both halves; program.cpp says what a rank runs and makes the
// kernels; graph.cpp says in which buffer each gradient lies. An Executor belongs to one thread at
// a time; its kernels use the engine's team.

#include "executor/executor.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "data/random.hpp"
#include "grid/exchange.hpp"

namespace rondo::train {
namespace {

// Never empty: a view of no elements still has an address, which says that it is there.
tensor::AnyTensor make(tensor::Engine& engine, std::int64_t elements, tensor::DataType type) {
  return tensor::AnyTensor({1, 1, 1, std::max<std::int64_t>(elements, 1)}, type, engine.memory());
}

// 0 for an executor that does not train.
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
    names.push_back(name_in_messages(node, model));
  }
  return names;
}

/// While it lives, layers are made in `memory`, for another user than those before. The engine is
/// told where layers allocate. Packed weights and workspaces of one batch size are not needed while
/// another runs, so all sizes get the same blocks.
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

Activations::Activations(tensor::Engine& engine, tensor::DataType type,
                         const std::vector<std::int64_t>& sizes, const BackwardPlan& backward,
                         const std::vector<std::string>& writers)
    : type_(type) {
  // Value 0 is the batch, whose memory is the caller's. The scope names the layer if the limit is
  // exceeded.
  for (std::size_t value = 1; value < sizes.size(); ++value) {
    const MemoryScope scope(engine.memory(), "the output of " + writers[value - 1]);
    values_.push_back(make(engine, sizes[value], type));
  }
  const MemoryScope scope(engine.memory(), "a gradient of activations");
  for (const std::int64_t elements : backward.elements) {
    gradients_.push_back(make(engine, elements, type));
  }
}

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
  // Training plans first: where evaluation has as many images, it finds one of these.
  for (const std::int64_t images : options_.training_batches)
    add_plan(images, KernelPurpose::training);
  add_plan(options_.evaluation_batch, KernelPurpose::evaluation);
  fixed_plans_ = plans_.size();
  const bool narrow = options_.precision != tensor::DataType::f32;
  if (plans_.front().input || narrow) input_ = make(engine, sizes_.front(), options_.precision);
  // The loss wants fp32, and so its gradient comes as fp32, too.
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
    // By name, so that dropout draws the same where other layers are added in front.
    random_layers_.push_back(node.layer ? layer_seed(options_.seed, model_.layers[*node.layer].name)
                                        : 0);
  }
  read_.reserve(most);
  input_gradients_.reserve(most);
}

void Executor::Impl::check_batch(const Batch& batch) const {
  const auto samples = static_cast<std::size_t>(batch.samples);
  const Box held = batch.part.value_or(whole(model_.input.with_n(batch.samples)));
  check_span("batch.images", batch.images.size(), static_cast<std::size_t>(held.size()));
  check_span("batch.labels", batch.labels.size(), samples);
  if (!batch.other_labels.empty()) {
    check_span("batch.other_labels", batch.other_labels.size(), samples);
  }
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
  const Box all = whole(model_.input.with_n(plan.images));
  const Box held = batch.part.value_or(all);
  const Box read = plan.input.value_or(all);
  if (held != read) {
    copy_box(read, {batch.images.data(), held}, {input_.data(), read, options_.precision});
    return input_.data();
  }
  if (options_.precision == tensor::DataType::f32) return batch.images.data();
  tensor::convert(engine_, tensor::View<const float>(batch.images.data(), read.shape()),
                  {input_.data(), read.shape(), options_.precision});
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

RandomKey Executor::Impl::random_key(std::size_t node) const noexcept {
  return {.layer = random_layers_[node],
          .step = position_.step,
          .first_sample = position_.first_sample};
}

tensor::Loss Executor::Impl::evaluate(const Batch& batch, std::span<const float> parameters,
                                      std::span<const float> statistics, Range counted) {
  check_batch(batch);
  check_span("parameters", parameters.size(), program_->layout().parameter_count);
  check_span("statistics", statistics.size(), program_->layout().statistic_count);
  evaluated_ = 0;
  counted_ = 0;
  // Evaluation packs other weights: infer() has to pack its own again.
  packed_for_ = 0;
  if (batch.samples == 0) return {};
  const BatchPlan& plan = run_inference(batch, {parameters, statistics});
  return loss_of(plan, batch, counted, 0.0F, {});
}

const BatchPlan& Executor::Impl::run_inference(const Batch& batch,
                                               const InferenceWeights& weights) {
  const BatchPlan& plan = evaluation_plan(batch.samples);
  const void* input = input_of(plan, batch);
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    // infer() is called for the same weights again and again, so it packs them once.
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
  const bool packed = std::exchange(packed_for_, 0) == samples;
  const BatchPlan& plan = run_inference({.samples = samples, .images = images},
                                        {state_.parameters, state_.statistics, packed});
  static_cast<void>(logits_of(plan));  // in bf16 they are converted
  packed_for_ = samples;
  return logits();
}

// This rank has the logits of some images; where several ranks hold the same, one reports them.
tensor::Loss Executor::Impl::loss_of(const BatchPlan& plan, const Batch& batch, Range counted,
                                     float smoothing, tensor::AnyView gradient) {
  // An evaluation batch may be filled up with images that another rank counts.
  const Range own = intersection(plan.scored, counted);
  tensor::View<const float> logits = logits_of(plan);
  logits = {logits.image(own.first - plan.scored.first), logits.shape.with_n(own.size())};
  const auto own_of = [&](std::span<const std::int32_t> labels) {
    if (labels.empty()) return labels;
    return labels.subspan(static_cast<std::size_t>(own.first),
                          static_cast<std::size_t>(own.size()));
  };
  // A bf16 executor has fp32 logits: their gradient is computed in their place, and rounded from
  // there into `gradient`.
  const bool narrow = gradient.type != tensor::DataType::f32;
  const tensor::View<float> wide =
      narrow ? tensor::View<float>(logits_.data(), gradient.shape) : gradient.as<float>();
  const LossOperands own_images{.logits = logits,
                                .labels = own_of(batch.labels),
                                .mixed = {own_of(batch.other_labels), batch.share},
                                .gradient = wide};
  const tensor::Loss loss = options_.loss
                                ? options_.loss(own_images)
                                : tensor::softmax_cross_entropy(engine_, logits, own_images.labels,
                                                                smoothing, wide, own_images.mixed);
  if (narrow) tensor::convert(engine_, wide, gradient);
  counted_ = plan.counts ? own.size() : 0;
  return plan.counts ? loss : tensor::Loss{};
}

std::span<const float> Executor::Impl::logits() const noexcept {
  if (logits_.data() != nullptr) return logits_.span().first(evaluated_);
  // The address is the same for all plans; only the number of elements differs.
  const auto logits = activations_.read(spans_.size(), nullptr, plans_.front());
  return {logits.as<float>().data, evaluated_};
}

Box Executor::Impl::images_read(std::int64_t samples) const {
  const BatchPlan* const plan = find(plans_, samples);
  // Where a batch is cut along samples, rows or columns, only the rank's own part is copied out.
  return plan != nullptr && plan->input ? *plan->input : whole(model_.input.with_n(samples));
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

// The interface.

StepObserver::~StepObserver() = default;

Executor::Executor(tensor::Engine& engine, const Model& model, const ModelState& state,
                   const ExecutorOptions& options)
    : impl_(std::make_unique<Impl>(
          engine, model, make_whole_program(engine, model, options.precision), state, options)) {}

Executor::Executor(tensor::Engine& engine, const Model& model, const GridPart& part,
                   const ModelState& state, const ExecutorOptions& options)
    : impl_(std::make_unique<Impl>(engine, model,
                                   make_split_program(engine, model, part, options.precision),
                                   state, options)) {}

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
                                std::span<const float> statistics, Range counted) {
  return impl_->evaluate(batch, parameters, statistics, counted);
}

std::span<const float> Executor::infer(std::span<const float> images, std::int64_t samples) {
  return impl_->infer(images, samples);
}

std::string Executor::first_not_finite(const Batch& batch) {
  return impl_->first_not_finite(batch);
}

std::span<const float> Executor::logits() const noexcept { return impl_->logits(); }

std::int64_t Executor::counted() const noexcept { return impl_->counted(); }

Box Executor::images_read(std::int64_t samples) const { return impl_->images_read(samples); }

std::vector<std::string> Executor::implementations() const { return impl_->implementations(); }

}  // namespace rondo::train

// The list of all kinds of layers. A new kind is a source of this folder and a line below: the
// source defines describe_NAME(), which says how a configuration describes a layer of the kind, and
// make_layer_type(), which makes it from its numbers. Nothing else has to know of it: all other
// sources ask the LayerType. This source also has what kinds of layers have in common, and defaults
// that suit most of them.

#include "layers/layer_type.hpp"

#include <algorithm>
#include <stdexcept>

namespace rondo::train {

// Each stands in the source of its kind.
#define RONDO_LAYER_KINDS(kind)                                                               \
  kind(convolution) kind(batch_norm) kind(max_pooling) kind(average_pooling)                  \
      kind(global_average_pooling) kind(fully_connected) kind(add) kind(concat) kind(dropout) \
          kind(activation)

#define RONDO_DECLARE_KIND(name) DescribedKind describe_##name();
#define RONDO_CALL_KIND(name) describe_##name(),

RONDO_LAYER_KINDS(RONDO_DECLARE_KIND)

// A list, and not objects that register themselves: the linker drops those of a static library that
// nobody refers to.
std::span<const DescribedKind> described_kinds() {
  static const std::vector<DescribedKind> kinds = {RONDO_LAYER_KINDS(RONDO_CALL_KIND)};
  return kinds;
}

const DescribedKind* find_kind(std::string_view name) {
  const auto kinds = described_kinds();
  const auto found = std::ranges::find(kinds, name, &DescribedKind::name);
  return found == kinds.end() ? nullptr : &*found;
}

tensor::Activation activation_of(const Experiment::Layer& description, tensor::Activation usual) {
  if (description.activation == "auto") return usual;
  return description.activation == "relu" ? tensor::Activation::relu : tensor::Activation::none;
}

namespace {

// The number of weights of a kernel; 0 for kernels without any.
template <typename Spec>
std::int64_t weights_of(const Spec& spec) {
  if constexpr (requires { spec.weights(); }) {
    return spec.weights();
  } else {
    return 0;
  }
}

// Each weight is multiplied and added once for every position of the output.
template <typename Spec>
double flops_of(const Spec& spec) {
  if constexpr (requires { spec.weights(); }) {
    const tensor::Shape y = spec.output();
    return 2.0 * static_cast<double>(y.n * y.h * y.w) * static_cast<double>(spec.weights());
  } else {
    return 0.0;
  }
}

std::unique_ptr<LayerKernel> typed_kernel(const LayerType& layer, tensor::Engine& engine,
                                          const tensor::Shape& input, bool input_gradient,
                                          KernelPurpose purpose, tensor::DataType type) {
  if (type == tensor::DataType::f32) {
    if (auto kernel = layer.kernel(engine, input, input_gradient, purpose)) return kernel;
    throw std::invalid_argument("the layer \"" + layer.text() +
                                "\" has no kernel: its kernel() gives null");
  }
  if (auto kernel = layer.bf16_kernel(engine, input, input_gradient, purpose)) return kernel;
  throw std::invalid_argument("the layer \"" + layer.text() +
                              "\" has no kernel for bf16; set train.precision = \"fp32\"");
}

}  // namespace

LayerType::~LayerType() = default;

int KernelContext::rank() const noexcept { return communicators.rank(); }

tensor::Shape LayerType::output_of(std::span<const tensor::Shape> inputs) const {
  for (const tensor::Shape& other : inputs.subspan(1)) {
    if (other == inputs[0]) continue;
    throw std::invalid_argument("adds " + size_text(other) + " to " + size_text(inputs[0]));
  }
  return output(inputs[0]);
}

double LayerType::flops(const tensor::Shape& input) const {
  return std::visit([](const auto& kernel) { return flops_of(kernel); }, spec(input));
}

std::int64_t LayerType::weights(const tensor::Shape& input) const {
  return std::visit([](const auto& kernel) { return weights_of(kernel); }, spec(input));
}

std::unique_ptr<LayerKernel> LayerType::bf16_kernel(tensor::Engine& engine,
                                                    const tensor::Shape& input, bool input_gradient,
                                                    KernelPurpose purpose) const {
  return traits().any_type ? kernel(engine, input, input_gradient, purpose) : nullptr;
}

std::unique_ptr<LayerKernel> LayerType::grid_kernel(const KernelContext& context,
                                                    const NodeLayout& layout,
                                                    bool input_gradient) const {
  // Right for layers whose kernel may run on the rank's box as if that were the whole value; the
  // others override it.
  if (windows() && layout.in_space()) {
    throw std::invalid_argument(
        "a layer that reads neighbouring pixels (" + text() +
        ") has no kernel for images that are split in space; declare LayerTraits::joins_pixels");
  }
  const tensor::Shape own = layout.x.box_of(context.communicators.rank()).shape();
  return typed_kernel(*this, context.engine, own, input_gradient && context.trains(),
                      context.purpose, context.type);
}

ParameterSlice LayerType::slice(const NodeLayout& layout, int rank) const {
  const Range y = layout.y.box_of(rank).c;
  return {.rows = y, .columns = layout.x.box_of(rank).c, .elements = y};
}

std::optional<LayerKind> LayerType::part_by_channel(ChannelGrid /*grid*/, int ranks,
                                                    tensor::Shape& input) const {
  input.c = largest_part(input.c, ranks);
  return std::nullopt;
}

std::optional<LayerKind> LayerType::with_bias(tensor::Activation /*activation*/) const {
  return std::nullopt;
}

std::string size_text(const tensor::Shape& shape) {
  return std::to_string(shape.h) + "x" + std::to_string(shape.w) + "x" + std::to_string(shape.c);
}

void check_windows(const Windows& windows, const tensor::Shape& input) {
  const auto is_positive = [](const Window& window) {
    return window.kernel >= 1 && window.stride >= 1;
  };
  if (!is_positive(windows.h) || !is_positive(windows.w)) {
    throw std::invalid_argument("window and stride must be positive");
  }
  if (windows.h.outputs(input.h) > 0 && windows.w.outputs(input.w) > 0) return;
  throw std::invalid_argument("its window is larger than its input of " + size_text(input));
}

// Layers without weights follow their input, but that some need all channels, or whole images. A
// fully connected layer reads whole images; a convolution by channel takes blocks of channels in
// any order, and transposes them.
ValueLayout layout_read_by(const LayerSpec& layer, const LayerSplit& split,
                           const ValueLayout& now) {
  if (!has_weights(layer)) {
    const LayerTraits traits = layer.kind->traits();
    const bool cut = (traits.joins_channels && cuts_channels(now.kind)) ||
                     (traits.joins_pixels && cuts_space(now.kind));
    return cut ? ValueLayout{.kind = SplitKind::replica} : now;
  }
  const ValueLayout in_order = {.kind = split.kind, .h = split.h, .w = split.w};
  if (!cuts_channels(split.kind)) return in_order;
  if (is_fully_connected(layer)) return {.kind = SplitKind::replica};
  return cut_alike(now, in_order) ? now : in_order;
}

// Means of whole images are sums over all ranks that share them: every one of them has the result.
ValueLayout layout_written_by(const LayerSpec& layer, const LayerSplit& split,
                              const ValueLayout& x) {
  const bool in_space = cuts_space(x.kind);
  if (layer.kind->traits().averages_images && in_space) return {.kind = SplitKind::replica};
  const bool by_channel = cuts_channels(split.kind) && is_convolution(layer);
  return by_channel ? turned(x, split.channels) : x;
}

// LayerKernel ------------------------------------------------------------------------------------

LayerKernel::~LayerKernel() = default;

void LayerKernel::load(std::span<const float> /*parameters*/) {}

void LayerKernel::backward_input(const BackwardOperands& /*operands*/) {}

std::string LayerKernel::implementation() const { return {}; }

std::unique_ptr<LayerKernel> make_layer_kernel(tensor::Engine& engine, const LayerKind& layer,
                                               tensor::Shape input, bool input_gradient,
                                               KernelPurpose purpose, tensor::DataType type) {
  const bool wanted = input_gradient && purpose == KernelPurpose::training;
  return typed_kernel(*layer, engine, input, wanted, purpose, type);
}

}  // namespace rondo::train

// A mirror of the kernels on a grid: what each takes, without making it. Whoever changes what a
// kernel allocates changes this, too; PlannedMemoryTest compares the two.

#include "layers/node_memory.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <variant>

#include <rondo/train/channel_grid.hpp>
#include <rondo/train/halo.hpp>
#include <rondo/train/redistribution.hpp>

#include "grid/halo_return.hpp"
#include "grid/local_windows.hpp"
#include "layers/space_geometry.hpp"
#include "model/specs.hpp"

namespace rondo::train {
namespace {

using tensor::KernelMemory;

std::size_t float_bytes(std::int64_t elements) {
  return static_cast<std::size_t>(elements) * sizeof(float);
}

void add_memory(KernelMemory& sum, const KernelMemory& more) {
  sum.own += more.own;
  sum.scratchpad = std::max(sum.scratchpad, more.scratchpad);
  sum.reorder_buffer = std::max(sum.reorder_buffer, more.reorder_buffer);
}

// What an Exchange packs and unpacks.
std::size_t exchange_bytes(const Redistribution& plan) {
  return float_bytes(plan.words_sent() + plan.words_received());
}

// What a NeededPart keeps.
std::size_t needed_bytes(const Partition& held, const std::vector<Box>& needs, const Box& reads,
                         int rank) {
  const std::size_t copy = reads == held.box_of(rank) ? 0 : float_bytes(reads.size());
  return copy + exchange_bytes(redistribution(held, needs, rank));
}

class NodeMemory {
 public:
  NodeMemory(KernelMemories& kernels, const GridLayer& place, int rank, bool input_gradient,
             BatchNormGroup statistics)
      : kernels_(kernels),
        place_(place),
        rank_(rank),
        x_(place.x.box_of(rank)),
        y_(place.y.box_of(rank)),
        input_gradient_(input_gradient ? tensor::InputGradient::wanted
                                       : tensor::InputGradient::unused),
        statistics_(statistics) {}

  KernelMemory operator()(const ConvolutionLayer& layer) const {
    if (place_.split.kind == SplitKind::channel) return by_channel(layer);
    if (place_.split.kind == SplitKind::space) return in_space(layer);
    return whole(spec_of(layer, x_.shape()));
  }

  KernelMemory operator()(const FullyConnectedLayer& layer) const {
    tensor::FullyConnectedSpec spec = spec_of(layer, x_.shape());
    if (place_.split.kind != SplitKind::channel) return whole(spec);
    spec.outputs = even_range(layer.outputs, place_.x.ranks(), rank_).size();
    if (spec.outputs == 0) return {};
    KernelMemory memory = whole(spec);
    memory.own += float_bytes(spec.input.n * spec.outputs);
    return memory;
  }

  KernelMemory operator()(const BatchNormLayer& layer) const {
    if (x_.c.empty()) return {};
    const bool shared = statistics_ != BatchNormGroup::rank;
    return kernels_.of(spec_of(layer, x_.shape()), shared);
  }

  KernelMemory operator()(const PoolingLayer& layer) const {
    if (!is_in_space()) return kernels_.of(spec_of(layer, x_.shape()));
    const Windows windows = windows_of(layer);
    const Halo halo = forward_halo(place_.x, place_.y, windows, rank_);
    const std::vector<Box> needs = forward_needs(place_.x, place_.y, windows);
    const LocalWindows local = forward_windows(halo, windows, x_);
    const Box reads = local.inputs_of(x_);
    KernelMemory memory{.own = needed_bytes(place_.x, needs, reads, rank_) +
                               exchange_bytes(halo_return(place_.x, needs, rank_))};
    if (halo.own.empty()) return memory;
    if (reads != x_) memory.own += float_bytes(reads.size());
    add_memory(memory, kernels_.of(within(spec_of(layer, reads.shape()), local)));
    return memory;
  }

  KernelMemory operator()(const GlobalAveragePoolingLayer& layer) const {
    if (is_in_space()) return {.own = float_bytes(x_.n.size() * x_.c.size())};
    return kernels_.of(spec_of(layer, x_.shape()));
  }

 private:
  [[nodiscard]] bool is_in_space() const { return place_.x.parts().h * place_.x.parts().w > 1; }

  template <typename Spec>
  KernelMemory whole(Spec spec) const {
    spec.input_gradient = input_gradient_;
    return kernels_.of(spec);
  }

  KernelMemory by_channel(const ConvolutionLayer& layer) const {
    const ChannelGrid grid = place_.split.channels;
    const tensor::Shape input = gathered_input(place_.x, grid, rank_).shape();
    const tensor::Shape output = partial_output(place_.x, grid, place_.y.extents(), rank_).shape();
    KernelMemory memory;
    if (grid.filters > 1) memory.own += float_bytes(input.size());
    if (grid.channels > 1) memory.own += float_bytes(output.size());
    if (input.c == 0 || output.c == 0) return memory;
    tensor::ConvolutionSpec spec = spec_of(layer, input);
    spec.filters = output.c;
    spec.bias = layer.bias && grid.channels == 1;
    if (grid.channels > 1) spec.activation = tensor::Activation::none;
    add_memory(memory, whole(spec));
    return memory;
  }

  KernelMemory in_space(const ConvolutionLayer& layer) const {
    const SpaceGeometry geometry(layer, place_, rank_);
    const bool data = input_gradient_ == tensor::InputGradient::wanted;
    KernelMemory memory{.own = needed_bytes(place_.x,
                                            forward_needs(place_.x, place_.y, geometry.windows),
                                            geometry.reads, rank_)};
    if (data) {
      memory.own += needed_bytes(place_.y, backward_needs(place_.x, place_.y, geometry.windows),
                                 geometry.backward.needed, rank_);
      if (!geometry.reached.empty() && geometry.reached != x_) {
        memory.own += float_bytes(geometry.reached.size());
      }
    }
    const bool one = data && geometry.has_one_kernel(layer);
    if (!geometry.forward.own.empty()) {
      tensor::ConvolutionSpec spec = geometry.forward_spec(layer);
      if (one) spec.input_gradient = tensor::InputGradient::wanted;
      add_memory(memory, kernels_.of(spec));
    }
    if (data && !one && !geometry.reached.empty()) add_memory(memory, data_kernel(layer, geometry));
    return memory;
  }

  // It shares its weights with the forward kernel, and its own forward is never run, but made.
  KernelMemory data_kernel(const ConvolutionLayer& layer, const SpaceGeometry& geometry) const {
    tensor::ConvolutionSpec spec = geometry.data_spec(layer);
    KernelMemory memory = kernels_.of(spec);
    spec.input_gradient = tensor::InputGradient::unused;
    if (!geometry.forward.own.empty()) memory.own -= kernels_.of(spec).own;
    return memory;
  }

  KernelMemories& kernels_;
  const GridLayer& place_;
  int rank_;
  Box x_;
  Box y_;
  tensor::InputGradient input_gradient_;
  BatchNormGroup statistics_;
};

template <typename Number>
void append_to(std::vector<std::int64_t>& key, std::initializer_list<Number> numbers) {
  for (const Number number : numbers) key.push_back(static_cast<std::int64_t>(number));
}

std::vector<std::int64_t> key_of_kernel(int kind, const tensor::Shape& input) {
  return {kind, input.n, input.h, input.w, input.c};
}

}  // namespace

template <typename Spec>
KernelMemory KernelMemories::known(const std::vector<std::int64_t>& key, const Spec& spec) {
  const auto found = known_.find(key);
  if (found != known_.end()) return found->second;
  KernelMemory memory;
  try {
    memory = tensor::memory_of(engine_, spec);
  } catch (const std::runtime_error&) {  // oneDNN has none
    if constexpr (requires { spec.weights(); }) memory.own = float_bytes(spec.weights());
  } catch (const std::invalid_argument&) {  // a part without rows or channels
  }
  return known_.emplace(key, memory).first->second;
}

KernelMemory KernelMemories::of(const tensor::ConvolutionSpec& spec) {
  std::vector<std::int64_t> key = key_of_kernel(0, spec.input);
  append_to(key, {spec.filters, spec.kernel_h, spec.kernel_w, spec.stride, spec.pad_top,
                  spec.pad_bottom, spec.pad_left, spec.pad_right});
  append_to(key, {static_cast<int>(spec.bias), static_cast<int>(spec.activation),
                  static_cast<int>(spec.input_gradient), static_cast<int>(spec.weight_gradient)});
  return known(key, spec);
}

KernelMemory KernelMemories::of(const tensor::FullyConnectedSpec& spec) {
  std::vector<std::int64_t> key = key_of_kernel(1, spec.input);
  append_to(key, {spec.outputs});
  append_to(key, {static_cast<int>(spec.bias), static_cast<int>(spec.activation),
                  static_cast<int>(spec.input_gradient), static_cast<int>(spec.weight_gradient)});
  return known(key, spec);
}

KernelMemory KernelMemories::of(const tensor::PoolingSpec& spec) {
  std::vector<std::int64_t> key = key_of_kernel(2, spec.input);
  append_to(key, {static_cast<std::int64_t>(spec.kind), spec.window_h, spec.window_w, spec.stride,
                  spec.pad_top, spec.pad_bottom, spec.pad_left, spec.pad_right,
                  static_cast<std::int64_t>(spec.input_gradient)});
  return known(key, spec);
}

KernelMemory KernelMemories::of(const tensor::BatchNormSpec& spec, bool shared) {
  return tensor::memory_of(engine_, spec, shared);
}

KernelMemory memory_of_node(KernelMemories& kernels, const Model& model, const Lowering& lowering,
                            std::size_t node, int rank, BatchNormGroup statistics) {
  const GraphNode& at = lowering.graph.nodes[node];
  const GridLayer& place = lowering.layouts[node];
  if (!at.layer) {
    return {.own = exchange_bytes(redistribution(place.x, place.y, rank)) +
                   exchange_bytes(redistribution(place.y, place.x, rank))};
  }
  const bool input_gradient = has_gradient(lowering.graph, at.inputs[0]);
  return std::visit(NodeMemory(kernels, place, rank, input_gradient, statistics),
                    model.layers[*at.layer].kind);
}

}  // namespace rondo::train

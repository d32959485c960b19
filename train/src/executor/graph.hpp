#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <rondo/train/model.hpp>

namespace rondo::train {

constexpr ValueId model_input = 0;  ///< the batch

/// One kernel's place in what a rank runs. Node i writes value i + 1; value 0 is the batch.
struct GraphNode {
  std::optional<std::size_t> layer = {};  ///< of the model; none: a change of layout between two
  std::vector<ValueId> inputs = {};       ///< the second one is a residual, unless `several`
  bool batch_norm = false;  ///< works in place, and adds up two gradients of its output
  bool in_place = false;    ///< may write the gradient of its first input over dy
  bool several = false;     ///< its kernel writes a gradient for each input
};

/// The node of layer `index`, without inputs.
[[nodiscard]] GraphNode node_of(const LayerSpec& layer, std::size_t index);

/// The name of a node in messages: "layer NAME", or "a change of layout".
[[nodiscard]] std::string name_in_messages(const GraphNode& node, const Model& model);

/// The nodes that a rank runs, in order; the last one gives the logits.
struct Graph {
  std::vector<GraphNode> nodes = {};
};

/// Does anybody want the gradient of `value`? Nobody that of the batch, in whichever layout.
[[nodiscard]] bool has_gradient(const Graph& graph, ValueId value);

/// Every layer is a node.
[[nodiscard]] Graph graph_of(const Model& model);

/// Elements of every value of `shapes`.
[[nodiscard]] std::vector<std::int64_t> sizes_of(const std::vector<tensor::Shape>& shapes);

/// A buffer that holds gradients of activations, one after another.
using BufferId = std::size_t;

/// The gradient of one input of a node with several.
struct InputGradient {
  std::optional<BufferId> dx = {};      ///< where the kernel puts it; none: not wanted
  std::optional<BufferId> add_to = {};  ///< the input's gradient, begun by another reader
};

/// One node's place in the backward pass.
struct BackwardStep {
  std::size_t node = 0;
  BufferId dy = 0;                               ///< the gradient of what the node wrote
  std::optional<BufferId> dy_also = {};          ///< a second part, which the kernel adds to dy
  std::optional<BufferId> dx = {};               ///< where the kernel puts that of its input
  std::optional<BufferId> add_dx_to = {};        ///< the input's gradient, begun by another reader
  std::optional<BufferId> add_residual_to = {};  ///< likewise for the residual, which dy then holds
  std::vector<InputGradient> inputs = {};        ///< of a node with several; dx is none then
};

/// Which gradient lies in which buffer, and when: the last node first, without those whose output
/// has no gradient.
///
/// A value has a gradient from its last reader's step (the first in this order) to its writer's.
/// Two parts from two readers stay apart where batch norm wrote the value: its backward adds them
/// in its first pass, for less than a pass of their own. A buffer is used again when it is free,
/// the one released last first, so that backward keeps to the few that are still in the cache.
struct BackwardPlan {
  std::vector<BackwardStep> steps = {};
  BufferId logits = 0;                      ///< where the loss puts its gradient
  std::vector<std::int64_t> elements = {};  ///< of each buffer
};

/// `sizes` are the elements of every value.
[[nodiscard]] BackwardPlan plan_backward(const Graph& graph,
                                         const std::vector<std::int64_t>& sizes);

/// The plan of the whole model, for one image.
[[nodiscard]] BackwardPlan plan_backward(const Model& model);

}  // namespace rondo::train

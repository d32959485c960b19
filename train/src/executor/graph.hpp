#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <rondo/train/model.hpp>

namespace rondo::train {

constexpr ValueId model_input = 0;  ///< the batch

/// One kernel's place in what a rank runs. Node i writes value i + 1; value 0 is the batch.
struct GraphNode {
  std::optional<std::size_t> layer = {};  ///< of the model; none: a change of layout between two
  std::vector<ValueId> inputs = {};       ///< the second one is a residual
  bool batch_norm = false;  ///< works in place, and adds up two gradients of its output
};

/// What a rank runs, in order; the last node gives the logits.
struct Graph {
  std::vector<GraphNode> nodes = {};
};

/// Does anybody want the gradient of `value`? Nobody that of the batch, in whichever layout.
[[nodiscard]] bool has_gradient(const Graph& graph, ValueId value);

/// Every layer is a node.
[[nodiscard]] Graph graph_of(const Model& model);

/// Elements of every value of `shapes`.
[[nodiscard]] std::vector<std::int64_t> sizes_of(const std::vector<tensor::Shape>& shapes);

}  // namespace rondo::train

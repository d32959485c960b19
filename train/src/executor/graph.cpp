// The graph of nodes that a rank runs, and the plan of its backward pass: in which buffers the
// gradients of values lie, and from when until when. The plan is a pure function of the graph, so
// that the planner of memory makes the same one.

#include "executor/graph.hpp"

#include <algorithm>

#include "layers/layer_type.hpp"

namespace rondo::train {
namespace {

// Hands out buffers and takes them back; grows one where none is large enough.
class BufferPool {
 public:
  BufferId acquire(std::int64_t elements) {
    if (free_.empty()) {
      elements_.push_back(elements);
      return elements_.size() - 1;
    }
    // The last one released that is large enough is probably still in the cache. Else the largest
    // grows, because that adds the least.
    const auto fits = std::find_if(free_.rbegin(), free_.rend(),
                                   [&](BufferId id) { return elements_[id] >= elements; });
    const auto chosen = fits != free_.rend() ? std::prev(fits.base()) : largest();
    const BufferId id = *chosen;
    free_.erase(chosen);
    elements_[id] = std::max(elements_[id], elements);
    return id;
  }

  void release(BufferId id) { free_.push_back(id); }

  [[nodiscard]] const std::vector<std::int64_t>& elements() const { return elements_; }

 private:
  std::vector<BufferId>::iterator largest() {
    return std::ranges::max_element(free_, {}, [&](BufferId id) { return elements_[id]; });
  }

  std::vector<std::int64_t> elements_;
  std::vector<BufferId> free_;  // the one released last is at the end
};

class Planner {
 public:
  Planner(const Graph& graph, const std::vector<std::int64_t>& sizes)
      : graph_(graph), sizes_(sizes), gradient_(sizes.size()), also_(sizes.size()) {}

  BackwardPlan plan() {
    BackwardPlan plan;
    // The first gradient there is: the loss writes it.
    plan.logits = pool_.acquire(sizes_.back());
    gradient_.back() = plan.logits;
    for (std::size_t i = graph_.nodes.size(); i-- > 0;) {
      if (has_gradient(graph_, i + 1)) plan.steps.push_back(step(i));
    }
    plan.elements = pool_.elements();
    return plan;
  }

 private:
  // dy ends here, unless it goes on as a gradient of an input: over its own place, or as that of
  // the residual. dx goes on unless it is added to a gradient that has begun.
  BackwardStep step(std::size_t i) {
    const GraphNode& node = graph_.nodes[i];
    BackwardStep step{.node = i, .dy = *gradient_[i + 1], .dy_also = also_[i + 1]};
    if (node.several) {
      place_several(node, step);
      return step;
    }
    const bool dx_goes_on = place_input(node, step);
    const bool dy_goes_on = node.inputs.size() == 2 ? place_residual(node.inputs[1], step)
                                                    : dx_goes_on && step.dx == step.dy;
    if (step.dy_also) pool_.release(*step.dy_also);
    if (!dy_goes_on) pool_.release(step.dy);
    if (!dx_goes_on && step.dx && step.dx != step.dy) pool_.release(*step.dx);
    return step;
  }

  // Buffers are given back last: the kernel writes all gradients before any of them is added to
  // another. One that is written over dy goes on in its place.
  void place_several(const GraphNode& node, BackwardStep& step) {
    bool dy_goes_on = false;
    for (const ValueId value : node.inputs) {
      InputGradient& input = step.inputs.emplace_back();
      if (!has_gradient(graph_, value)) continue;
      const bool over_dy = node.in_place && step.inputs.size() == 1;
      input.dx = over_dy ? step.dy : pool_.acquire(sizes_[value]);
      input.add_to = collect(value, *input.dx);
      if (over_dy) dy_goes_on = !input.add_to;
    }
    if (step.dy_also) pool_.release(*step.dy_also);
    if (!dy_goes_on) pool_.release(step.dy);
    for (const InputGradient& input : step.inputs) {
      if (input.add_to && input.dx != step.dy) pool_.release(*input.dx);
    }
  }

  // True when dx goes on as a gradient of the layer's input. Batch norm needs room for it even
  // if nobody reads it, and works in place when dy is not wanted for a residual.
  bool place_input(const GraphNode& node, BackwardStep& step) {
    const ValueId value = node.inputs[0];
    const bool in_place = (node.batch_norm || node.in_place) && node.inputs.size() == 1;
    if (in_place) {
      step.dx = step.dy;
    } else if (has_gradient(graph_, value) || node.batch_norm) {
      step.dx = pool_.acquire(sizes_[value]);
    }
    if (!has_gradient(graph_, value)) return false;
    step.add_dx_to = collect(value, *step.dx);
    return !step.add_dx_to;
  }

  // True when dy goes on as a gradient of `value`.
  bool place_residual(ValueId value, BackwardStep& step) {
    if (!has_gradient(graph_, value)) return false;
    step.add_residual_to = collect(value, step.dy);
    return !step.add_residual_to;
  }

  // Keeps `buffer` as the gradient of `value`, or as its second part where the writer of `value`
  // adds two while it reads them. Otherwise says which buffer to add it to.
  std::optional<BufferId> collect(ValueId value, BufferId buffer) {
    if (!gradient_[value]) {
      gradient_[value] = buffer;
      return {};
    }
    if (!also_[value] && graph_.nodes[value - 1].batch_norm) {
      also_[value] = buffer;
      return {};
    }
    return gradient_[value];
  }

  const Graph& graph_;
  const std::vector<std::int64_t>& sizes_;
  std::vector<std::optional<BufferId>> gradient_;  // of each value, once it has begun
  std::vector<std::optional<BufferId>> also_;      // its second part
  BufferPool pool_;
};

}  // namespace

// The batch has no gradient, nor has a copy of it in another layout.
bool has_gradient(const Graph& graph, ValueId value) {
  if (value == model_input) return false;
  const GraphNode& writer = graph.nodes[value - 1];
  return writer.layer || has_gradient(graph, writer.inputs[0]);
}

GraphNode node_of(const LayerSpec& layer, std::size_t index) {
  const LayerTraits traits = layer.kind->traits();
  return {.layer = index,
          .batch_norm = traits.batch_statistics,
          .in_place = traits.in_place,
          .several = traits.several_inputs};
}

std::string name_in_messages(const GraphNode& node, const Model& model) {
  return node.layer ? "layer " + model.layers[*node.layer].name : "a change of layout";
}

Graph graph_of(const Model& model) {
  Graph graph;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    graph.nodes.push_back(node_of(model.layers[i], i));
    graph.nodes.back().inputs = model.layers[i].inputs;
  }
  return graph;
}

std::vector<std::int64_t> sizes_of(const std::vector<tensor::Shape>& shapes) {
  std::vector<std::int64_t> sizes;
  for (const tensor::Shape& shape : shapes) sizes.push_back(shape.size());
  return sizes;
}

BackwardPlan plan_backward(const Graph& graph, const std::vector<std::int64_t>& sizes) {
  return Planner(graph, sizes).plan();
}

BackwardPlan plan_backward(const Model& model) {
  return plan_backward(graph_of(model), sizes_of(shapes_of(model, 1)));
}

}  // namespace rondo::train

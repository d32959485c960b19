// The part of a model that a rank runs: all of it (WholeModel), or its share of a model that a
// replica runs together (SplitModel). Both make the kernels for one batch size at a time; the
// executor then runs either of them the same way.

#include "executor/program.hpp"

#include <cstdint>

#include "executor/lowering.hpp"
#include "executor/memory.hpp"
#include "grid/exchange.hpp"
#include "layers/split_kernels.hpp"

namespace rondo::train {
namespace {

/// All layers on this rank alone.
class WholeModel final : public Program {
 public:
  /// The engine is lent.
  WholeModel(tensor::Engine& engine, const Model& model, tensor::DataType type)
      : engine_(engine),
        model_(model),
        type_(type),
        graph_(graph_of(model)),
        layout_(layout_of(model)) {}

  [[nodiscard]] const Graph& graph() const noexcept override { return graph_; }
  [[nodiscard]] const ParameterLayout& layout() const noexcept override { return layout_; }
  [[nodiscard]] BatchPlan plan(std::int64_t images, KernelPurpose purpose) override {
    BatchPlan plan{.images = images, .shapes = shapes_of(model_, images), .scored = {0, images}};
    for (std::size_t i = 0; i < model_.layers.size(); ++i) {
      const LayerSpec& layer = model_.layers[i];
      // If the limit of memory is exceeded in here, the message names this layer.
      const MemoryScope scope(engine_.memory(), "layer " + layer.name);
      plan.kernels.push_back(make_layer_kernel(engine_, layer.kind, plan.shapes[layer.inputs[0]],
                                               has_gradient(graph_, layer.inputs[0]), purpose,
                                               type_));
    }
    return plan;
  }

  [[nodiscard]] std::vector<std::int64_t> sizes(std::int64_t images) const override {
    return sizes_of(shapes_of(model_, images));
  }

 private:
  tensor::Engine& engine_;
  Model model_;
  tensor::DataType type_;
  Graph graph_;
  ParameterLayout layout_;
};

/// A rank's part of a model that its replica runs together. Made by all ranks of the replica
/// together, as are its plans.
class SplitModel final : public Program {
 public:
  /// `engine` is lent, and what `part` points to.
  SplitModel(tensor::Engine& engine, const Model& model, const GridPart& part,
             tensor::DataType type)
      : model_(model),
        type_(type),
        part_(part),
        communicators_(*part.replica, {.pr = part.replica->size(), .pc = 1}),
        engine_(engine),
        message_memory_(part.memory),
        lowering_(lowered(1)),
        layout_(layout_of(model, lowering_, communicators_.rank())) {}

  [[nodiscard]] const Graph& graph() const noexcept override { return lowering_.graph; }
  [[nodiscard]] const ParameterLayout& layout() const noexcept override { return layout_; }
  // All ranks of the replica make their kernels in the same order, for some split communicators.
  // Messages of all plans use the same memory: only one plan runs at a time.
  [[nodiscard]] BatchPlan plan(std::int64_t images, KernelPurpose purpose) override {
    message_memory_.rewind();
    const KernelContext context{.engine = engine_,
                                .communicators = communicators_,
                                .memory = &message_memory_,
                                .across = part_.across,
                                .purpose = purpose,
                                .statistics = part_.batch_norm,
                                .type = type_};
    const Lowering lowering = lowered(images);
    const int rank = communicators_.rank();
    BatchPlan plan{.images = images};
    for (const Partition& value : lowering.values)
      plan.shapes.push_back(value.box_of(rank).shape());
    for (std::size_t i = 0; i < lowering.graph.nodes.size(); ++i) {
      plan.kernels.push_back(make_kernel(context, lowering.graph.nodes[i], lowering.layouts[i]));
    }
    const Partition& input = lowering.values.front();
    if (input.blocks() > 1) plan.input = input.box_of(rank);
    const Partition& logits = lowering.values.back();
    plan.scored = logits.box_of(rank).n;
    // Where every rank has all logits, one of them counts the loss, so that no image counts twice.
    plan.counts = logits.holders() == 1 || rank == 0;
    return plan;
  }

  // Fewer images may leave a rank more than its part of the most, but no more than the largest
  // part.
  [[nodiscard]] std::vector<std::int64_t> sizes(std::int64_t images) const override {
    std::vector<std::int64_t> sizes;
    for (const Partition& value : lowered(images).values) {
      const tensor::Shape own = value.box_of(communicators_.rank()).shape();
      const std::int64_t parts = value.parts().n;
      sizes.push_back(own.with_n((images + parts - 1) / parts).size());
    }
    return sizes;
  }

  [[nodiscard]] bool runs_empty_batches() const noexcept override { return true; }

 private:
  [[nodiscard]] Lowering lowered(std::int64_t images) const {
    return lower(model_, part_.splits, communicators_.grid().pr, images);
  }

  [[nodiscard]] std::unique_ptr<LayerKernel> make_kernel(const KernelContext& context,
                                                         const GraphNode& node,
                                                         const NodeLayout& layout) {
    if (!node.layer) return make_redistribution(context, layout.x, layout.y);
    const LayerSpec& layer = model_.layers[*node.layer];
    const MemoryScope scope(engine_.memory(), "layer " + layer.name);
    const bool input_gradient = context.trains() && has_gradient(lowering_.graph, node.inputs[0]);
    return layer.kind->grid_kernel(context, layout, input_gradient);
  }

  Model model_;
  tensor::DataType type_;
  GridPart part_;
  GridCommunicators communicators_;
  tensor::Engine& engine_;
  ReusedMemory message_memory_;  // what kernels take of part.memory
  Lowering lowering_;            // of one image
  ParameterLayout layout_;
};

}  // namespace

std::unique_ptr<Program> make_whole_program(tensor::Engine& engine, const Model& model,
                                            tensor::DataType type) {
  return std::make_unique<WholeModel>(engine, model, type);
}

std::unique_ptr<Program> make_split_program(tensor::Engine& engine, const Model& model,
                                            const GridPart& part, tensor::DataType type) {
  return std::make_unique<SplitModel>(engine, model, part, type);
}

// Statistics of a layer are adjacent, and in the layout in the same order as the layers.
std::vector<LayerSpans> spans_of(const Model& model, const ParameterLayout& layout) {
  std::vector<LayerSpans> all;
  std::size_t block = 0;
  std::size_t statistic = 0;
  for (const LayerSpec& layer : model.layers) {
    LayerSpans spans;
    if (block < layout.blocks.size() && layout.blocks[block].name == layer.name) {
      spans.block = block;
      spans.offset = layout.blocks[block].offset;
      spans.size = layout.blocks[block].size;
      ++block;
    }
    for (; statistic < layout.statistics.size(); ++statistic) {
      const Parameter& next = layout.statistics[statistic];
      if (next.layer() != layer.name) break;
      if (spans.statistics_size == 0) spans.statistics_offset = next.offset;
      spans.statistics_size += next.size();
    }
    all.push_back(spans);
  }

  return all;
}

}  // namespace rondo::train

#include "grid/grid_program.hpp"

#include <type_traits>
#include <variant>

#include "executor/accounted_memory.hpp"
#include "grid/slices.hpp"

namespace rondo::train {
namespace {

// The kernel of each kind of layer where it lies on a grid.
class Maker {
 public:
  Maker(const GridContext& context, const GridLayer& place, bool input_gradient,
        BatchNormGroup statistics)
      : context_(context),
        place_(place),
        input_gradient_(input_gradient),
        statistics_(statistics) {}

  std::unique_ptr<LayerKernel> operator()(const ConvolutionLayer& layer) const {
    return is_by_channel() ? make_convolution_by_channel(context_, layer, place_, input_gradient_)
                           : make_convolution_in_space(context_, layer, place_, input_gradient_);
  }
  std::unique_ptr<LayerKernel> operator()(const FullyConnectedLayer& layer) const {
    if (is_by_channel()) return make_connected_by_output(context_, layer, place_, input_gradient_);
    const Box x = place_.x.box_of(context_.communicators.rank());
    return make_layer_kernel(context_.engine, layer, x.shape(), input_gradient_, context_.purpose);
  }
  std::unique_ptr<LayerKernel> operator()(const BatchNormLayer& layer) const {
    return make_batch_norm_on_grid(context_, layer, place_, statistics_);
  }
  std::unique_ptr<LayerKernel> operator()(const PoolingLayer& layer) const {
    return make_pooling_in_space(context_, layer, place_);
  }
  std::unique_ptr<LayerKernel> operator()(const GlobalAveragePoolingLayer& /*layer*/) const {
    return make_global_average_on_grid(context_, place_);
  }

 private:
  [[nodiscard]] bool is_by_channel() const { return place_.split.kind == SplitKind::channel; }

  const GridContext& context_;
  const GridLayer& place_;
  bool input_gradient_;
  BatchNormGroup statistics_;
};

}  // namespace

GridProgram::GridProgram(tensor::Engine& engine, const Model& model, const GridPart& part)
    : model_(model),
      part_(part),
      communicators_(*part.group, {.pr = part.group->size(), .pc = 1}),
      engine_(engine),
      travelling_(part.memory),
      lowering_(lowered(1)),
      layout_(layout_of(model, lowering_, communicators_.rank())) {}

Lowering GridProgram::lowered(std::int64_t images) const {
  return lower(model_, part_.splits, communicators_.grid().pr, images);
}

std::unique_ptr<LayerKernel> GridProgram::make_kernel(const GridContext& context,
                                                      const GraphNode& node,
                                                      const GridLayer& place) {
  if (!node.layer) return make_redistribution(context, place.x, place.y);
  const LayerSpec& layer = model_.layers[*node.layer];
  const MemoryScope scope(engine_.memory(), "layer " + layer.name);
  const bool input_gradient = context.trains() && has_gradient(lowering_.graph, node.inputs[0]);
  return std::visit(Maker(context, place, input_gradient, part_.batch_norm), layer.kind);
}

BatchPlan GridProgram::plan(std::int64_t images, KernelPurpose purpose) {
  travelling_.rewind();
  const GridContext context{.engine = engine_,
                            .communicators = communicators_,
                            .memory = &travelling_,
                            .across = part_.across,
                            .purpose = purpose};
  const Lowering lowering = lowered(images);
  const int rank = communicators_.rank();
  BatchPlan plan{.images = images};
  for (const Partition& value : lowering.values) plan.shapes.push_back(value.box_of(rank).shape());
  for (std::size_t i = 0; i < lowering.graph.nodes.size(); ++i) {
    plan.kernels.push_back(make_kernel(context, lowering.graph.nodes[i], lowering.layouts[i]));
  }
  const Partition& input = lowering.values.front();
  if (input.blocks() > 1) plan.input = input.box_of(rank);
  const Partition& logits = lowering.values.back();
  plan.judged = logits.box_of(rank).n;
  plan.counts = logits.replicas() == 1 || rank == 0;
  return plan;
}

// Fewer images may leave a rank more than its part of the most, but no more than the largest part.
std::vector<std::int64_t> GridProgram::sizes(std::int64_t images) const {
  std::vector<std::int64_t> sizes;
  for (const Partition& value : lowered(images).values) {
    const tensor::Shape own = value.box_of(communicators_.rank()).shape();
    const std::int64_t parts = value.parts().n;
    sizes.push_back(own.with_n((images + parts - 1) / parts).size());
  }
  return sizes;
}

}  // namespace rondo::train

#include "grid/layer_traffic.hpp"

#include <algorithm>
#include <cstddef>
#include <variant>

#include <rondo/train/channel_grid.hpp>
#include <rondo/train/grid.hpp>
#include <rondo/train/halo.hpp>
#include <rondo/train/redistribution.hpp>

namespace rondo::train {
namespace {

std::uint64_t words_to(const Partition& from, const std::vector<Box>& wanted) {
  std::uint64_t words = 0;
  for (int rank = 0; rank < from.ranks(); ++rank) {
    words += static_cast<std::uint64_t>(redistribution(from, wanted, rank).words_sent());
  }
  return words;
}

std::uint64_t elements(const Box& box) { return static_cast<std::uint64_t>(box.size()); }

LayerTraffic of_change(const GridLayer& layout, bool input_gradient) {
  const auto words = [](const Partition& from, const Partition& to) {
    return static_cast<std::uint64_t>(words_moved(from, to));
  };
  return {words(layout.x, layout.y), input_gradient ? words(layout.y, layout.x) : 0};
}

LayerTraffic of_channels(const GridLayer& layout, bool input_gradient) {
  const ChannelGrid grid = layout.split.channels;
  LayerTraffic traffic;
  for (int rank = 0; rank < layout.x.ranks(); ++rank) {
    const std::uint64_t x = elements(layout.x.box_of(rank));
    const std::uint64_t y = elements(layout.y.box_of(rank));
    const std::uint64_t gathered = elements(gathered_input(layout.x, grid, rank));
    const std::uint64_t partial =
        elements(partial_output(layout.x, grid, layout.y.extents(), rank));
    traffic.forward += x * static_cast<std::uint64_t>(grid.filters - 1) + (partial - y);
    traffic.backward += y * static_cast<std::uint64_t>(grid.channels - 1);
    if (input_gradient) traffic.backward += gathered - x;
  }
  return traffic;
}

LayerTraffic of_outputs(const GridLayer& layout, bool input_gradient) {
  const auto others = static_cast<std::uint64_t>(layout.x.ranks() - 1);
  const auto all = [](const Partition& value) {
    return static_cast<std::uint64_t>(value.extents().size());
  };
  return {others * all(layout.y), input_gradient ? 2 * others * all(layout.x) : 0};
}

class Counter {
 public:
  Counter(const GridLayer& layout, bool input_gradient)
      : layout_(layout), input_gradient_(input_gradient) {}

  LayerTraffic operator()(const ConvolutionLayer& layer) const {
    if (by_channel()) return of_channels(layout_, input_gradient_);
    const Windows windows = windows_of(layer);
    return {
        words_to(layout_.x, forward_needs(layout_.x, layout_.y, windows)),
        input_gradient_ ? words_to(layout_.y, backward_needs(layout_.x, layout_.y, windows)) : 0};
  }
  // The gradients of a halo go back the way that it came.
  LayerTraffic operator()(const PoolingLayer& layer) const {
    const std::uint64_t halo =
        words_to(layout_.x, forward_needs(layout_.x, layout_.y, windows_of(layer)));
    return {halo, input_gradient_ ? halo : 0};
  }
  LayerTraffic operator()(const FullyConnectedLayer& /*layer*/) const {
    return by_channel() ? of_outputs(layout_, input_gradient_) : LayerTraffic{};
  }
  LayerTraffic operator()(const GlobalAveragePoolingLayer& /*layer*/) const {
    if (layout_.x.parts().h * layout_.x.parts().w == 1) return {};
    const auto others = static_cast<std::uint64_t>(layout_.x.ranks() - 1);
    return {2 * others * static_cast<std::uint64_t>(layout_.y.extents().size()), 0};
  }
  LayerTraffic operator()(const BatchNormLayer& /*layer*/) const { return {}; }

 private:
  [[nodiscard]] bool by_channel() const { return layout_.split.kind == SplitKind::channel; }

  const GridLayer& layout_;
  bool input_gradient_;
};

}  // namespace

std::vector<LayerTraffic> traffic_of(const Model& model, const Lowering& lowering) {
  std::vector<LayerTraffic> layers(model.layers.size());
  std::size_t layer = 0;  // that the next node belongs to
  for (std::size_t i = 0; i < lowering.graph.nodes.size(); ++i) {
    const GraphNode& node = lowering.graph.nodes[i];
    const bool input_gradient = has_gradient(lowering.graph, node.inputs[0]);
    const GridLayer& layout = lowering.layouts[i];
    const LayerTraffic traffic =
        node.layer ? std::visit(Counter(layout, input_gradient), model.layers[*node.layer].kind)
                   : of_change(layout, input_gradient);
    LayerTraffic& sum = layers[node.layer.value_or(std::min(layer, layers.size() - 1))];
    sum.forward += traffic.forward;
    sum.backward += traffic.backward;
    if (node.layer) layer = *node.layer + 1;
  }
  return layers;
}

std::vector<std::uint64_t> activation_words(const Model& model,
                                            const std::vector<LayerSplit>& splits, ProcessGrid grid,
                                            std::int64_t images) {
  std::vector<std::uint64_t> words(model.layers.size());
  for (int group = 0; group < grid.pc; ++group) {
    const std::int64_t own = even_range(images, grid.pc, group).size();
    const std::vector<LayerTraffic> layers = traffic_of(model, lower(model, splits, grid.pr, own));
    for (std::size_t i = 0; i < layers.size(); ++i) words[i] += layers[i].words();
  }
  return words;
}

std::vector<std::uint64_t> gradient_words(const Model& model, const std::vector<LayerSplit>& splits,
                                          ProcessGrid grid) {
  const std::vector<bool> adds_up = adds_up_in_group(model, splits, grid.pr);
  std::vector<std::uint64_t> words(adds_up.size());
  for (int place = 0; place < grid.pr; ++place) {
    const ParameterLayout held = layout_of(model, splits, grid.pr, place);
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (adds_up[i] && place > 0) continue;  // one slice, of all ranks
      const int holders = adds_up[i] ? grid.ranks() : grid.pc;
      words[i] += 2 * static_cast<std::uint64_t>(holders - 1) * held.groups[i].size;
    }
  }
  return words;
}

}  // namespace rondo::train
